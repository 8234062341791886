"""A step as Xenna sees it: a stage over packed tasks."""

from __future__ import annotations

import re
from typing import Any

from cosmos_xenna.pipelines import v1 as xenna

from gristmill.backends.bridge.collector import PackedTask
from gristmill.backends.bridge.process import StepProcess, StepWork
from gristmill.stages.core import WorkerMetadata


class XennaStep(xenna.Stage):
    """One step in one of Xenna's workers. It raises nothing because of a task."""

    def __init__(self, work: StepWork, batch_size: int, cpus: float, gpus: float) -> None:
        self.work = work
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

    def process_data(self, in_data: list[PackedTask]) -> list[PackedTask]:
        outputs = list(self._prepared().units.run(in_data))
        return outputs if self.work.wanted else []

    def _prepared(self) -> StepProcess:
        if self._process is None:
            self._process = StepProcess(self.work)
            self._process.prepare()
        return self._process

    def _worker(self, given: Any) -> WorkerMetadata:
        gpus = tuple(gpu.index for gpu in given.allocation.gpus)
        return WorkerMetadata(given.worker_id, given.allocation.node, self.cpus, gpus, self.gpus)


def named_step(name: str, *arguments: Any) -> XennaStep:
    """Return a step whose class is named after its stages: Xenna shows the name of the class."""
    word = re.sub(r"\W+", "_", name).strip("_") or "Step"
    kind = type(word, (XennaStep,), {"__module__": __name__})
    step: XennaStep = kind(*arguments)
    return step
