"""Images as points in a space of texts, without a model of both: a convex combination of class names (ConSE)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gristmill.errors import ModelError
from gristmill.lazy import Array, np
from gristmill.models.checkpoint import PACKAGE, Checkpoint
from gristmill.models.vision import lite0
from gristmill.models.vision.loading import VisionSpec, load
from gristmill.models.vision.rows import RowModel
from gristmill.stages.image.embedders.input import PIXELS
from gristmill.stages.image.embedders.rows_stage import BATCH, GPUS, RowModelStage
from gristmill.stages.registry import builtin_internal
from gristmill.stages.text.embedders.base import DEFAULT_MODEL
from gristmill.stages.text.embedders.model import embedding_column, unit_length
from gristmill.tasks import DocumentBatch

if TYPE_CHECKING:
    import pyarrow as pa

CLASS_NAMES = "package:timm/data/_info"
"""The folder of the package timm with the names of ImageNet's classes. Nothing of it is imported."""
SYNSETS, LEMMAS = "imagenet_synsets.txt", "imagenet_synset_to_lemma.txt"
CONSE_EMBEDDING = "_gristmill_conse_embedding"
MOST_PROBABLE = 10


@builtin_internal
@dataclass(eq=False, repr=False, kw_only=True)
class ConseModelStage(RowModelStage):
    """Adds the mean of the text embeddings of an image's ten most probable classes, weighted by their probabilities.

    `ConSESimilarityFilterStage` explains the arguments.
    """

    text_model: str = DEFAULT_MODEL
    class_names: str = CLASS_NAMES
    model_inference_batch_size: int = BATCH
    num_gpus_per_worker: float = GPUS
    cache_dir: str | None = None
    hf_token: str | bool | None = None

    def __post_init__(self) -> None:
        self.spec = VisionSpec(Checkpoint(lite0.MODEL), classes=True)
        self._names: Array | None = None
        self.begin(PIXELS, self.model_inference_batch_size, self.num_gpus_per_worker)

    def outputs(self) -> tuple[list[str], list[str]]:
        return ["data"], [CONSE_EMBEDDING]

    def check_needs(self) -> None:
        self.spec.check()
        class_names(self.class_names)

    def fetch(self) -> None:
        self.spec.fetch()
        Checkpoint(self.text_model, self.cache_dir, self.hf_token).fetch()

    def load(self, device: str) -> RowModel:
        self._names = self._embedded(class_names(self.class_names))
        return load(self.spec, device)

    def item(self) -> tuple[tuple[int, ...], str]:
        return (*self.spec.preprocessing.shape, 3), "uint8"

    def results(self, rows: Array, task: DocumentBatch) -> Mapping[Any, pa.Array]:
        assert self._names is not None, "setup() comes first"
        return {CONSE_EMBEDDING: embedding_column(conse(rows, self._names), "float32")}

    def _embedded(self, names: list[str]) -> Array:
        """The embedding of each name, by the stages that embed captions, so that both are of one kind."""
        import pyarrow as pa

        from gristmill.stages.image.filters.scored import embeddings_of
        from gristmill.stages.text.embedders.base import EmbeddingCreatorStage

        embedder = EmbeddingCreatorStage(
            model_identifier=self.text_model, cache_dir=self.cache_dir, hf_token=self.hf_token, autocast=False
        )
        task: Any = DocumentBatch(data=pa.table({"text": names}))
        for stage in embedder.flatten():
            stage = stage.with_(resources=self.resources_without_gpu or self.resources)
            stage.setup()
            task = stage.process(task)  # on a CPU, each makes one task of one
            stage.teardown()
        return unit_length(embeddings_of(task, embedder.embedding_field)[0])


def conse(probabilities: Array, names: Array) -> Array:
    """The embedding of each image (ConSE), of length one: of its ten most probable classes, weighted by probability."""
    rows = probabilities.astype(np.float64)
    # of equal ones, the first
    best = np.argsort(-rows, axis=1, kind="stable")[:, :MOST_PROBABLE]
    weights = np.take_along_axis(rows, best, axis=1)
    mixed = (weights[:, :, None] * names[best].astype(np.float64)).sum(axis=1)
    return unit_length(mixed).astype(np.float32)


def class_names(source: str) -> list[str]:
    """Return the names of ImageNet's 1,000 classes, in the order of their numbers: of timm's folder, or a text file."""
    if source.startswith(PACKAGE):
        try:
            folder = Checkpoint(source).folder()
        except ModelError:
            raise ModelError(
                f"class names {source!r}: the package is not installed.\n    pip install --no-deps timm  (only its "
                "lists are read), or give class_names a file with the names of the 1,000 classes, one in a line."
            ) from None
        lemmas = dict(line.split("\t", 1) for line in _lines(folder / LEMMAS))
        found = [lemmas.get(synset, "") for synset in _lines(folder / SYNSETS)]
    else:
        found = _lines(Path(source).expanduser())
    if len(found) != lite0.CLASSES or not all(found):
        raise ModelError(f"class names {source!r}: there are {len(found):,} names, not {lite0.CLASSES:,}.")
    return found


def _lines(path: Path) -> list[str]:
    try:
        return [line.strip() for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    except (OSError, ValueError) as error:
        raise ModelError(f"class names: {path} cannot be read ({error}).") from None
