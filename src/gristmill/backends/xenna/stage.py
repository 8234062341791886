"""A step as Xenna sees it: a stage over packed tasks."""

from __future__ import annotations

import re
from typing import Any

from cosmos_xenna.pipelines import v1 as xenna

from gristmill.backends.bridge.process import RemoteClerk, StepProcess
from gristmill.backends.bridge.unit import Packed
from gristmill.stages.core import WorkerMetadata


class XennaStep(xenna.Stage):  # type: ignore[misc]  # has no types
    """One step in one of Xenna's workers. It raises nothing because of a task."""

    def __init__(
        self, clerk: RemoteClerk, step: int, attempts: int, wanted: bool, batch_size: int, cpus: float, gpus: float
    ) -> None:
        self.clerk = clerk
        self.step = step
        self.attempts = attempts
        self.wanted = wanted
        self.batch_size = batch_size
        self.cpus = cpus
        self.gpus = gpus
        self._process: StepProcess | None = None

    @property
    def required_resources(self) -> Any:
        return xenna.Resources(cpus=self.cpus, gpus=self.gpus)

    @property
    def stage_batch_size(self) -> int:
        return self.batch_size

    def setup_on_node(self, node_info: Any, worker_metadata: Any) -> None:
        worker = self._worker(worker_metadata)
        self._prepared().run_node_setup(node_info.node_id, worker)

    def setup(self, worker_metadata: Any) -> None:
        self._prepared().set_up(self._worker(worker_metadata))

    def process_data(self, in_data: list[Packed]) -> list[Packed]:
        made = list(self._prepared().bench.run(in_data))
        return [(x.label, x.payload) for x in made] if self.wanted else []

    def _prepared(self) -> StepProcess:
        if self._process is None:
            self._process = StepProcess(self.clerk, self.step, self.attempts)
            self._process.prepare()
        return self._process

    def _worker(self, given: Any) -> WorkerMetadata:
        gpus = tuple(gpu.index for gpu in given.allocation.gpus)
        return WorkerMetadata(given.worker_id, given.allocation.node, self.cpus, gpus, self.gpus)


def named_step(name: str, *arguments: Any) -> XennaStep:
    """A step whose class has the name of its stages, which is what Xenna shows."""
    word = re.sub(r"\W+", "_", name).strip("_") or "Step"
    kind = type(word, (XennaStep,), {"__module__": __name__})
    step: XennaStep = kind(*arguments)
    return step
