"""What stages share whose model makes one row of numbers of each input of a fixed size."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from gristmill.errors import ModelError
from gristmill.lazy import Array, np
from gristmill.models.vision.rows import Items, RowEngine, RowInference, RowModel
from gristmill.stages.inference import InferenceStage
from gristmill.stages.resources import Resources
from gristmill.stages.text.filters.columns import column_of, set_column
from gristmill.tasks import DocumentBatch

if TYPE_CHECKING:
    import pyarrow as pa

BATCH = 32
GPUS = 0.25


class RowModelStage(InferenceStage, builtin=True):
    """Computes a row of numbers of each document from a column of inputs, makes columns of it, and removes the inputs.

    Documents keep their order. A worker has a share of a GPU; where there is none, it runs on CPUs.
    """

    resources = Resources(cpus=1, gpus=GPUS)
    max_in_flight = 3
    """The GPU computes one task while the inputs of the next are copied, and the results of the last are passed on."""
    indifferent: ClassVar[tuple[str, ...]] = (
        *("cache_dir", "hf_token", "model_inference_batch_size"),
        *("num_gpus_per_worker", "torch_compile"),
    )
    what: ClassVar[str] = "image"

    def begin(self, input_field: str, batch_size: int, gpus: float) -> None:
        """Set what subclasses are given by their users."""
        if isinstance(batch_size, bool) or not isinstance(batch_size, int) or batch_size < 1:
            raise ValueError(f"model_inference_batch_size must be a whole number of at least 1, not {batch_size!r}.")
        self.input_field = input_field
        self.batch = batch_size
        self.resources = Resources(cpus=1, gpus=gpus)
        self._engine = None

    @abstractmethod
    def load(self, device: str) -> RowModel:
        """Load the model."""

    @abstractmethod
    def item(self) -> tuple[tuple[int, ...], str]:
        """The shape of one input, and the type of its numbers."""

    @abstractmethod
    def results(self, rows: Array, task: DocumentBatch) -> Mapping[Any, pa.Array]:
        """The columns, by name or field, made of the numbers of each document (float32)."""

    def inputs(self) -> tuple[list[str], list[str]]:
        return ["data"], [self.input_field]

    def removes(self) -> list[str]:
        return [self.input_field]

    def make_engine(self, device: str) -> RowEngine:
        engine = RowEngine(self.load(device), self.batch, self.what)
        engine.warm_up(*self.item())
        return engine

    async def computed(self, task: DocumentBatch, inference: RowInference) -> DocumentBatch:
        rows = await inference.run(self._items(task))
        for field, column in self.results(rows, task).items():
            set_column(task, field, column)
        task.data = task.data.drop_columns([name for name in self.removes() if name in task.data.column_names])
        task.account.notes.update(inference.notes)
        task.account.counters.update(inference.counters)
        return task

    def _items(self, task: DocumentBatch) -> Items:
        """The inputs of a task, without a copy."""
        shape, kind = self.item()
        size = int(np.prod(shape)) * np.dtype(kind).itemsize
        parts = []
        for chunk in column_of(task, self.input_field).chunks:
            if chunk.null_count or chunk.type.byte_width != size:
                raise ModelError(
                    f"column {self.input_field!r} does not hold the input of the model of stage {self.name!r}."
                )
            if len(chunk):
                start = chunk.offset * size
                data = np.frombuffer(chunk.buffers()[1], np.uint8, len(chunk) * size, start)
                parts.append(data.view(kind).reshape(len(chunk), *shape))
        return Items(parts)
