"""What stages share that run a model: its files, its device, and tasks that are computed one after another."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Coroutine
from typing import Any, Protocol

from gristmill.stages.core import NodeInfo, ProcessingStage, WorkerMetadata
from gristmill.stages.resources import Resources
from gristmill.tasks import DocumentBatch


class Engine(Protocol):
    """Runs the model of a worker."""

    def begin(self) -> Any:
        """Begin the computation of a task."""

    def begin_async(self) -> Any:
        """Begin the computation of a task beside others."""

    def close(self) -> None:
        """End the threads."""


class InferenceStage(ProcessingStage[DocumentBatch, DocumentBatch], builtin=True):
    """Runs a model on documents. A worker has a GPU, or a share of one; where there is none, it runs on CPUs."""

    accounts_for_documents = True
    resources_without_gpu = Resources(cpus=1)
    _engine: Engine | None

    @abstractmethod
    def fetch(self) -> None:
        """Download what is not on this machine yet."""

    @abstractmethod
    def make_engine(self, device: str) -> Engine:
        """Load the model."""

    @abstractmethod
    def computed(self, task: DocumentBatch, inference: Any) -> Coroutine[Any, Any, DocumentBatch]:
        """The task with its new columns. ``inference`` is what the engine has begun."""

    def preload(self) -> None:
        try:
            import torch  # noqa: F401  # imported once for all workers
        except ImportError:
            raise ImportError(f"stage {self.name!r} needs the package torch: pip install 'gristmill[models]'") from None

    def setup_on_node(self, node_info: NodeInfo | None = None, worker_metadata: WorkerMetadata | None = None) -> None:
        self.fetch()

    def setup(self, worker_metadata: WorkerMetadata | None = None) -> None:
        self._engine = self.make_engine(device_of(worker_metadata))

    def teardown(self) -> None:
        if self._engine is not None:
            self._engine.close()
            self._engine = None

    def runs_async(self) -> bool:
        return self.resources.requires_gpu

    def process(self, task: DocumentBatch) -> Any:
        from gristmill.models.engine import without_waiting

        assert self._engine is not None, "setup() comes first"
        if self.runs_async():
            return self.computed(task, self._engine.begin_async())
        return without_waiting(self.computed(task, self._engine.begin()))


def device_of(worker: WorkerMetadata | None) -> str:
    """Return the device of a worker for models: "cuda" or "cpu". Its memory is limited to the worker's share."""
    import torch

    from gristmill.models.gpu_memory import limit_memory

    if worker is None or not worker.gpus or not torch.cuda.is_available():
        return "cpu"
    if 0 < worker.gpu_share < 1:
        limit_memory(worker.gpu_share)
    return "cuda"
