"""Pixels to embeddings, by a model on a GPU or on CPUs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gristmill.lazy import Array
from gristmill.models.checkpoint import Checkpoint
from gristmill.models.vision.loading import VisionSpec, load
from gristmill.models.vision.rows import RowModel
from gristmill.stages.image.embedders.input import PIXELS
from gristmill.stages.image.embedders.made_by import EmbedsImages, MadeBy
from gristmill.stages.image.embedders.rows_stage import BATCH, GPUS, RowModelStage
from gristmill.stages.registry import builtin_internal
from gristmill.stages.text.embedders.model import embedding_column, unit_length
from gristmill.tasks import DocumentBatch
from gristmill.tasks.image import IMAGE

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(eq=False, repr=False, kw_only=True)
class VisionModelStage(RowModelStage, EmbedsImages):
    """The base of stages that embed pixels of a fixed size by a model of images."""

    model: str
    model_inference_batch_size: int = BATCH
    num_gpus_per_worker: float = GPUS
    embedding_field: str = "embedding"
    dtype: str = "float32"
    normalize: bool = True
    autocast: bool = True
    torch_compile: bool = True
    cache_dir: str | None = None
    hf_token: str | bool | None = None

    def begin_with(self, pixel_field: str) -> None:
        """Prepare the stage for the pixels in this column."""
        checkpoint = Checkpoint(self.model, self.cache_dir, self.hf_token)
        self.spec = VisionSpec(checkpoint, "auto" if self.autocast else "float32", self.torch_compile)
        self.begin(pixel_field, self.model_inference_batch_size, self.num_gpus_per_worker)

    @property
    def embedded_by(self) -> tuple[str, MadeBy]:
        return self.embedding_field, MadeBy(self.model, self.spec.space)

    def outputs(self) -> tuple[list[str], list[str]]:
        return ["data"], [self.embedding_field]

    def check_needs(self) -> None:
        self.spec.check()

    def fetch(self) -> None:
        self.spec.fetch()

    def load(self, device: str) -> RowModel:
        return load(self.spec, device)

    def item(self) -> tuple[tuple[int, ...], str]:
        return (*self.spec.preprocessing.shape, 3), "uint8"


@builtin_internal
@dataclass(eq=False, repr=False, kw_only=True)
class ImageEmbeddingModelStage(VisionModelStage):
    """The model of an `ImageEmbeddingStage`, which explains the arguments."""

    remove_image_data: bool = False
    image_field: str = IMAGE
    pixel_field: str = PIXELS

    def __post_init__(self) -> None:
        self.begin_with(self.pixel_field)

    def removes(self) -> list[str]:
        return [self.pixel_field, *([self.image_field] if self.remove_image_data else [])]

    def results(self, rows: Array, task: DocumentBatch) -> Mapping[Any, pa.Array]:
        column = embedding_column(unit_length(rows) if self.normalize else rows, self.dtype)
        return {self.embedded_by[1].field(self.embedding_field, column.type): column}
