"""Embeddings of clips by Cosmos-Embed1: frames on CPUs, and the model on a GPU."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gristmill.lazy import Array
from gristmill.models.checkpoint import Checkpoint
from gristmill.models.video.cosmos_embed1 import CosmosEmbed1Spec, checkpoint_of
from gristmill.models.vision.rows import RowModel
from gristmill.stages.core import NodeInfo, WorkerMetadata
from gristmill.stages.image.embedders.input import pixel_column
from gristmill.stages.image.embedders.made_by import EmbedsImages, MadeBy
from gristmill.stages.image.embedders.rows_stage import RowModelStage
from gristmill.stages.registry import builtin
from gristmill.stages.resources import Resources
from gristmill.stages.text.embedders.model import embedding_column
from gristmill.stages.video.embedding.clips import ClipFrameStage, ClipSource
from gristmill.tasks import DocumentBatch
from gristmill.tasks.video import VideoTask

if TYPE_CHECKING:
    import pyarrow as pa

COSMOS_FRAMES = "_gristmill_cosmos_frames"
"""The column of the frames between the two stages. The second removes it."""
BATCH = 8


@builtin
@dataclass(eq=False, repr=False, kw_only=True)
class CosmosEmbed1FrameCreationStage(ClipFrameStage):
    """Adds the frames of each clip that `CosmosEmbed1EmbeddingStage` reads: eight, at the size of the model.

        CosmosEmbed1FrameCreationStage(variant="336p"), CosmosEmbed1EmbeddingStage(variant="336p")

    - ``variant``: "224p", "336p" or "448p", the checkpoint ``nvidia/Cosmos-Embed1-336p`` and so on.
    - ``model``: another checkpoint: a folder, ``package:module/folder``, or a repository on the Hugging Face hub.
    - ``model_dir``: a folder that is a checkpoint, or that holds ``nvidia/Cosmos-Embed1-336p`` and so on.
    - ``target_fps``: the rate at which frames are taken from a clip. Of these, every *n*-th is used, from the first on,
      so that there are eight. A clip that is too short for that has its frames at equal distances.
    - ``frame_field``: the column of the frames.
    - ``num_cpus``: the CPUs of a worker.
    - ``cache_dir``, ``hf_token``: the cache of the Hugging Face hub, and an access token for gated repositories.
    - ``verbose``: accepted for pipelines of NeMo Curator.

    Frames are those of the encoded clip, or those of the video between the times of the clip. A clip that cannot be
    read becomes a bad record.
    """

    indifferent = ("cache_dir", "hf_token", "num_cpus", "verbose")

    variant: str = "336p"
    model: str | None = None
    model_dir: str | None = None
    target_fps: float = 2.0
    frame_field: str = COSMOS_FRAMES
    num_cpus: float = 1
    cache_dir: str | None = None
    hf_token: str | bool | None = None
    verbose: bool = False

    def __post_init__(self) -> None:
        if not self.target_fps > 0:
            raise ValueError(f"target_fps must be above 0, not {self.target_fps!r}.")
        name = checkpoint_of(self.variant, self.model, self.model_dir)
        self.spec = CosmosEmbed1Spec(Checkpoint(name, self.cache_dir, self.hf_token))
        self.resources = Resources(cpus=self.num_cpus)
        self._item: tuple[int, int, int, int] | None = None

    def outputs(self) -> tuple[list[str], list[str]]:
        return ["data"], [self.frame_field]

    def check_needs(self) -> None:
        super().check_needs()
        _ = self.spec.item

    def setup_on_node(self, node_info: NodeInfo | None = None, worker_metadata: WorkerMetadata | None = None) -> None:
        _ = self.spec.item  # of a repository, its configuration

    def setup(self, worker_metadata: WorkerMetadata | None = None) -> None:
        self._item = self.spec.item

    def frames_of(self, row: int, source: ClipSource, task: VideoTask) -> tuple[Any, int]:
        assert self._item is not None, "setup() comes first"
        count, height, width, _ = self._item
        pixels = source.frames_at(sample_times(source.length_s, self.target_fps, count), (height, width))
        return pixels, pixels.nbytes

    def columns_of(self, made: Sequence[Any]) -> Mapping[str, pa.Array]:
        assert self._item is not None, "setup() comes first"
        return {self.frame_field: pixel_column(list(made), self._item)}


def sample_times(length_s: float, fps: float, count: int) -> list[float]:
    """Return the times of ``count`` frames of a clip, among those at a rate: every *n*-th of them, from the first on.

    If a clip has fewer at this rate, they are at equal distances.
    """
    there = int(length_s * fps + 1e-6)
    if there < count:
        return [number * length_s / count for number in range(count)]
    step = there // count
    return [number * step / fps for number in range(count)]


@builtin
@dataclass(eq=False, repr=False, kw_only=True)
class CosmosEmbed1EmbeddingStage(RowModelStage, EmbedsImages):
    """Adds an embedding of each clip by Cosmos-Embed1: a list of 256 ("224p") or 768 numbers, of length one.

        CosmosEmbed1EmbeddingStage(variant="336p", gpu_memory_gb=16)

    - ``variant``, ``model``, ``model_dir``, ``frame_field``, ``cache_dir``, ``hf_token``: those of
      `CosmosEmbed1FrameCreationStage`.
    - ``gpu_memory_gb``: the memory of a GPU that a worker gets. Without a GPU, CPUs compute, in 32 bits.
    - ``embedding_field``: the column of the embeddings.
    - ``dtype``: the type of the numbers, "float32" or "float16".
    - ``model_inference_batch_size``: how many clips the model computes together on a GPU. When they do not fit into its
      memory, the number is halved.
    - ``autocast``: compute in 16 bits on a GPU.
    - ``torch_compile``: compile the model on a GPU, which takes about a minute when a worker starts.
    - ``trust_remote_code``: run the model by the Python code in its checkpoint. By default gristmill's own network
      computes, which knows checkpoints whose weights have the names in docs/video.md.
    - ``verbose``: accepted for pipelines of NeMo Curator.
    """

    what = "clip"
    indifferent = (
        *("cache_dir", "hf_token", "model_inference_batch_size"),
        *("gpu_memory_gb", "torch_compile", "verbose"),
    )

    variant: str = "336p"
    model: str | None = None
    model_dir: str | None = None
    gpu_memory_gb: float = 16
    frame_field: str = COSMOS_FRAMES
    embedding_field: str = "embedding"
    dtype: str = "float32"
    model_inference_batch_size: int = BATCH
    autocast: bool = True
    torch_compile: bool = True
    trust_remote_code: bool = False
    cache_dir: str | None = None
    hf_token: str | bool | None = None
    verbose: bool = False

    def __post_init__(self) -> None:
        if self.dtype not in ("float32", "float16"):
            raise ValueError(f"dtype must be 'float32' or 'float16', not {self.dtype!r}.")
        self.checkpoint = checkpoint_of(self.variant, self.model, self.model_dir)
        self.spec = CosmosEmbed1Spec(
            Checkpoint(self.checkpoint, self.cache_dir, self.hf_token),
            "auto" if self.autocast else "float32",
            self.torch_compile,
            self.trust_remote_code,
        )
        self.begin(self.frame_field, self.model_inference_batch_size, 0)
        self.resources = Resources(cpus=1, gpu_memory_gb=self.gpu_memory_gb)

    @property
    def embedded_by(self) -> tuple[str, MadeBy]:
        return self.embedding_field, MadeBy(self.checkpoint, self.spec.space)

    def outputs(self) -> tuple[list[str], list[str]]:
        return ["data"], [self.embedding_field]

    def check_needs(self) -> None:
        self.spec.check()

    def fetch(self) -> None:
        self.spec.fetch()

    def load(self, device: str) -> RowModel:
        return self.spec.load(device)

    def item(self) -> tuple[tuple[int, ...], str]:
        return self.spec.item, "uint8"

    def results(self, rows: Array, task: DocumentBatch) -> Mapping[Any, pa.Array]:
        column = embedding_column(rows, self.dtype)
        return {self.embedded_by[1].field(self.embedding_field, column.type): column}
