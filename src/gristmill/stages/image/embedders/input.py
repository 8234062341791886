"""Encoded images to the input of a model, on CPU workers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from gristmill.images.decode import MAX_PIXELS
from gristmill.lazy import Array, np
from gristmill.models.checkpoint import Checkpoint
from gristmill.models.vision.loading import VisionSpec
from gristmill.models.vision.preprocessing import Preprocessing
from gristmill.stages.core import NodeInfo, ProcessingStage, WorkerMetadata
from gristmill.stages.image.decoded import each_decoded
from gristmill.stages.registry import builtin_internal
from gristmill.stages.text.filters.columns import set_column
from gristmill.tasks import DocumentBatch
from gristmill.tasks.image import IMAGE

if TYPE_CHECKING:
    import pyarrow as pa

PIXELS = "_gristmill_pixels"
"""The column of resized pixels between this stage and a model, which removes it."""


@builtin_internal
@dataclass(eq=False, repr=False, kw_only=True)
class ImageInputStage(ProcessingStage[DocumentBatch, DocumentBatch]):
    """Adds a column of the pixels of each image, resized and cropped for a model: 8 bits, RGB, of a fixed size.

    Images that cannot be read are reported as bad. `ImageEmbeddingStage` explains the arguments.
    """

    accounts_for_documents = True
    row_wise = True
    indifferent = ("cache_dir", "hf_token")

    model: str
    image_field: str = IMAGE
    scaled_decode: bool = True
    max_pixels: int = MAX_PIXELS
    cache_dir: str | None = None
    hf_token: str | bool | None = None
    pixel_field: str = PIXELS

    def __post_init__(self) -> None:
        self._preprocessing: Preprocessing | None = None
        self.spec = VisionSpec(Checkpoint(self.model, self.cache_dir, self.hf_token))

    def inputs(self) -> tuple[list[str], list[str]]:
        return ["data"], [self.image_field]

    def outputs(self) -> tuple[list[str], list[str]]:
        return ["data"], [self.pixel_field]

    def preload(self) -> None:
        try:
            import PIL.Image  # noqa: F401  # imported once for all workers
        except ImportError:
            raise ImportError(f"stage {self.name!r} needs the package pillow: pip install 'gristmill[image]'") from None

    def setup_on_node(self, node_info: NodeInfo | None = None, worker_metadata: WorkerMetadata | None = None) -> None:
        self.spec.fetch()

    def setup(self, worker_metadata: WorkerMetadata | None = None) -> None:
        self._preprocessing = self.spec.preprocessing

    def process(self, task: DocumentBatch) -> DocumentBatch:
        assert self._preprocessing is not None, "setup() comes first"
        side = self._preprocessing.needed_side if self.scaled_decode else None
        task, made = each_decoded(task, self._preprocessing.pixels, side, self.image_field, self.max_pixels)
        set_column(task, self.pixel_field, pixel_column(made, (*self._preprocessing.shape, 3)))
        return task


def pixel_column(made: list[Array], shape: tuple[int, ...]) -> pa.Array:
    """Return pixels as an Arrow column of binaries of a fixed size."""
    import pyarrow as pa

    joined = np.concatenate([one.reshape(-1) for one in made]) if made else np.zeros(0, np.uint8)
    kind = pa.binary(int(np.prod(shape)))
    return pa.Array.from_buffers(kind, len(made), [None, pa.py_buffer(joined)])
