"""Drop images that their captions do not fit, by embeddings of both in one space."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gristmill.images.decode import MAX_PIXELS
from gristmill.lazy import Array, np
from gristmill.stages.core import CompositeStage, ProcessingStage
from gristmill.stages.image.embedders.captions import CAPTION_EMBEDDING, CaptionModelStage, CaptionTokenizerStage
from gristmill.stages.image.embedders.input import ImageInputStage
from gristmill.stages.image.embedders.made_by import check_before, check_column
from gristmill.stages.image.embedders.model import ImageEmbeddingModelStage
from gristmill.stages.image.embedders.rows_stage import BATCH, GPUS
from gristmill.stages.image.filters.scored import ScoreAtLeast, ScoredStage, embeddings_of
from gristmill.stages.protocols import Linked, Stages
from gristmill.stages.registry import builtin, builtin_internal
from gristmill.tasks import DocumentBatch
from gristmill.tasks.image import CAPTION, IMAGE

IMAGE_EMBEDDING = "_gristmill_image_embedding"
NO_CAPTION = "no caption"


@builtin
@dataclass(eq=False, repr=False, kw_only=True)
class ImageTextSimilarityFilterStage(CompositeStage[DocumentBatch, DocumentBatch]):
    """Keeps images whose caption fits: the cosine of both embeddings by CLIP or SigLIP is at least ``score_threshold``.

        ImageTextSimilarityFilterStage(model="openai/clip-vit-base-patch32", score_threshold=0.28)

    - ``model``: a checkpoint of CLIP or SigLIP with both its models, as in `ImageEmbeddingStage`.
    - ``score_threshold``: LAION-400M used 0.3 with ViT-B/32. Cosines of SigLIP are smaller.
    - ``embedding_field``: a column of embeddings of the images that ImageEmbeddingStage has made with the same model.
      By default the images are embedded here.
    - ``caption_field``, ``image_field``: the columns of captions and encoded images. Images without a caption are
      dropped.
    - ``score_field``: the column for the scores; None stores none.
    - The other arguments are those of `ImageEmbeddingStage`.
    """

    indifferent = (
        *("cache_dir", "hf_token", "model_inference_batch_size"),
        *("num_gpus_per_worker", "torch_compile"),
    )
    loads = ("PIL.Image", "tokenizers", "torch")

    model: str
    score_threshold: float = 0.28
    embedding_field: str | None = None
    caption_field: str = CAPTION
    image_field: str = IMAGE
    score_field: str | None = "image_text_similarity"
    model_inference_batch_size: int = BATCH
    num_gpus_per_worker: float = GPUS
    scaled_decode: bool = True
    max_pixels: int = MAX_PIXELS
    autocast: bool = True
    torch_compile: bool = True
    cache_dir: str | None = None
    hf_token: str | bool | None = None

    def decompose(self) -> list[ProcessingStage[Any, Any]]:
        hub: dict[str, Any] = {"model": str(self.model), "cache_dir": self.cache_dir, "hf_token": self.hf_token}
        compute: dict[str, Any] = {
            "model_inference_batch_size": self.model_inference_batch_size,
            "num_gpus_per_worker": self.num_gpus_per_worker,
            "autocast": self.autocast,
            "torch_compile": self.torch_compile,
        }
        field = self.embedding_field or IMAGE_EMBEDDING
        stages: list[ProcessingStage[Any, Any]] = []
        if self.embedding_field is None:
            decoding: dict[str, Any] = {"scaled_decode": self.scaled_decode, "max_pixels": self.max_pixels}
            stages = [
                _named(ImageInputStage(**hub, **decoding, image_field=self.image_field), self.name, "input"),
                _named(ImageEmbeddingModelStage(**hub, **compute, embedding_field=field), self.name, "model"),
            ]
        similarity = SimilarityStage(
            rule_name="image_text_similarity",
            score_threshold=self.score_threshold,
            score_field=self.score_field,
            image_embedding=field,
            wanted=str(self.model),
            keep_embedding=self.embedding_field is not None,
        )
        similarity.name = self.name
        return [
            *stages,
            _named(CaptionTokenizerStage(**hub, caption_field=self.caption_field), self.name, "caption tokenizer"),
            _named(CaptionModelStage(**hub, **compute, caption_field=self.caption_field), self.name, "caption model"),
            similarity,
        ]


def _named(stage: ProcessingStage[Any, Any], name: str, role: str) -> ProcessingStage[Any, Any]:
    stage.name = f"{name} {role}"
    return stage


@builtin_internal
@dataclass(eq=False, repr=False, kw_only=True)
class SimilarityStage(ScoredStage, Linked):
    """Scores documents by the cosine of two columns of embeddings, and removes those that were made for that."""

    score_threshold: float
    rule_name: str
    image_embedding: str
    score_field: str | None = None
    text_embedding: str = CAPTION_EMBEDDING
    wanted: str = ""
    """The model that the embeddings of images must be of; empty if the stages before are always right."""
    keep_embedding: bool = False

    def __post_init__(self) -> None:
        self.rule: Any = ScoreAtLeast(self.rule_name, self.score_threshold, NO_CAPTION)

    def inputs(self) -> tuple[list[str], list[str]]:
        return ["data"], [self.image_embedding, self.text_embedding]

    def removes(self) -> list[str]:
        return [self.text_embedding, *([] if self.keep_embedding else [self.image_embedding])]

    def linked(self, before: Stages, after: Stages) -> SimilarityStage:
        if self.wanted:
            check_before(self.name, self.image_embedding, self.wanted, before)
        return self

    def scores(self, task: DocumentBatch) -> tuple[DocumentBatch, Array]:
        if self.wanted:
            check_column(self.name, task.data.schema.field(self.image_embedding), self.wanted)
        found = np.full(task.num_items, np.nan, dtype=np.float32)
        images, has_image = embeddings_of(task, self.image_embedding)
        texts, has_text = embeddings_of(task, self.text_embedding)
        both = has_image & has_text
        if both.any():
            found[both] = cosines(images[both[has_image]], texts[both[has_text]])
        task.data = task.data.drop_columns(self.removes())
        return task, found


def cosines(a: Array, b: Array) -> Array:
    """The cosine of each pair of rows."""
    if a.shape[1] != b.shape[1]:
        raise TypeError(f"embeddings of {a.shape[1]:,} and of {b.shape[1]:,} numbers cannot be compared.")
    a, b = a.astype(np.float64), b.astype(np.float64)
    lengths = np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1)
    found: Array = ((a * b).sum(axis=1) / np.maximum(lengths, 1e-12)).astype(np.float32)
    return found
