"""Drop images by their aesthetic score."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gristmill.errors import ModelError
from gristmill.lazy import Array
from gristmill.models.vision.heads import Network, ScoreHead
from gristmill.stages.core import NodeInfo, WorkerMetadata
from gristmill.stages.image.filters.scored import EmbeddingScoredStage, ScoreAtLeast
from gristmill.stages.registry import builtin

PUBLISHED = "ttj/sac-logos-ava1-l14-linearMSE"
"""The aesthetic head that NeMo Curator uses, on the Hugging Face hub."""


class HeadStage(EmbeddingScoredStage):
    """Scores embeddings by a head."""

    head: ScoreHead
    embedding_model: str | None

    def load_head(self, model: str, cache_dir: str | None) -> None:
        """Name the head. It is read by `setup`."""
        self.head = ScoreHead(model, cache_dir)
        self._network: Network | None = None

    def check_needs(self) -> None:
        self.head.check()
        self.wanted_model()

    def wanted_model(self) -> str:
        wanted = self.embedding_model or self.head.reads()
        if wanted is None:
            raise ModelError(
                f"stage {self.name!r}: its weights read embeddings of {self.head.check():,} numbers, which does not "
                "tell their model.\n    name it with embedding_model: 'ViT-L/14', or that of ImageEmbeddingStage."
            )
        return wanted

    def setup_on_node(self, node_info: NodeInfo | None = None, worker_metadata: WorkerMetadata | None = None) -> None:
        self.head.fetch()

    def setup(self, worker_metadata: WorkerMetadata | None = None) -> None:
        self._network = self.head.network()

    def scores_of(self, embeddings: Array) -> Array:
        assert self._network is not None, "setup() comes first"
        if embeddings.shape[1] != self._network.width:
            raise ModelError(
                f"stage {self.name!r} reads embeddings of {self._network.width:,} numbers, but those in "
                f"{self.embedding_field!r} have {embeddings.shape[1]:,}.\n    embed the images with "
                f"{self.wanted_model()}, or name the weights that belong to the embeddings."
            )
        return self._network.scores(embeddings)


@builtin
@dataclass(eq=False, repr=False, kw_only=True)
class ImageAestheticFilterStage(HeadStage):
    """Keeps images whose aesthetic score, by a head on embeddings of CLIP, is at least ``score_threshold``.

        ImageAestheticFilterStage(model="aesthetic-mlp-vit-l-14.safetensors", score_threshold=5.0)

    - ``model``: the weights of the head: a file (.safetensors), a folder, ``package:module/folder``, or a repository
      on the Hugging Face hub. Linear heads and stacks of dense layers are known. The default is the head that NeMo
      Curator uses. ``model_dir`` is another name for it.
    - ``score_threshold``: scores are about 0 to 10. The default is that of NeMo Curator.
    - ``embedding_field``: the column of the embeddings.
    - ``embedding_model``: the model that they must be of: "ViT-L/14", "ViT-B/32", "ViT-B/16", or the name of a
      checkpoint. By default the numbers in an embedding tell: 768 are ViT-L/14, 512 are ViT-B/32. Embeddings of another
      model are refused when the run is planned.
    - ``score_field``: the column for the scores; None stores none.
    - ``cache_dir``: the cache of the Hugging Face hub.
    - ``num_gpus_per_worker``, ``model_inference_batch_size``, ``verbose``: accepted for pipelines of NeMo Curator. A
      head takes microseconds of a CPU.
    """

    indifferent = ("cache_dir", "num_gpus_per_worker", "model_inference_batch_size", "verbose")

    model: str | None = None
    model_dir: str | None = None
    score_threshold: float = 0.5
    embedding_field: str = "embedding"
    embedding_model: str | None = None
    score_field: str | None = "aesthetic_score"
    cache_dir: str | None = None
    num_gpus_per_worker: float = 0.0
    model_inference_batch_size: int = 32
    verbose: bool = False

    def __post_init__(self) -> None:
        self.rule: Any = ScoreAtLeast("aesthetic", self.score_threshold)
        self.load_head(str(one_of(self, self.model, self.model_dir) or PUBLISHED), self.cache_dir)


def one_of(stage: object, model: str | None, model_dir: str | None) -> str | None:
    """Return the model that was given by one of two names."""
    if model is not None and model_dir is not None:
        raise ValueError(f"{type(stage).__name__}: model and model_dir are the same argument: give one of them.")
    return model or model_dir
