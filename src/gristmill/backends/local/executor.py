"""`LocalExecutor`: runs a plan on this machine, without any server."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from gristmill.backends.base import Executor, ExecutorLimits, Plan, RunRecord
from gristmill.backends.local.local_config import LocalConfig
from gristmill.backends.local.processes import Processes
from gristmill.stages.core import ProcessingStage
from gristmill.tasks import Task


class LocalExecutor(Executor):
    """Runs pipelines on this machine: all stages at once, in processes that end with the run.

        result = pipeline.run(LocalExecutor(config={"num_cpus": 8, "memory_limit": "16GB"}))

    The options are those of `LocalConfig`; others are errors. The machine's CPUs, GPUs and memory are the default,
    cgroup limits respected. ``num_cpus`` and ``num_gpus`` may exceed the hardware.
    """

    on_cluster = False
    config_class = LocalConfig
    config: LocalConfig

    def __init__(self, config: Mapping[str, Any] | None = None) -> None:
        super().__init__(config)
        self._processes: Processes | None = None
        """Those of the run that `starting` is about, or of the next of `several`."""
        self._several = False

    def limits(self) -> ExecutorLimits:
        return ExecutorLimits(self.config.cpus, self.config.num_gpus, self.config.memory_limit_bytes)

    @contextmanager
    def starting(self, stages: Sequence[ProcessingStage[Any, Any]]) -> Iterator[Executor]:
        executor = copy.copy(self)
        executor._processes, executor._several = None, False
        executor.ahead(stages)
        try:
            yield executor
        finally:
            executor._end()

    def ahead(self, stages: Sequence[ProcessingStage[Any, Any]]) -> None:
        if self._processes is None:
            self._processes = Processes(modules_of(stages))
        else:
            self._processes.ahead(modules_of(stages))

    @contextmanager
    def several(self) -> Iterator[None]:
        self._several = True
        try:
            yield
        finally:
            self._several = False
            self._end()

    def _end(self) -> None:
        """End the processes that no run has taken."""
        if self._processes is not None:
            self._processes.close()
            self._processes = None

    def execute(self, plan: Plan, initial_tasks: Iterable[Task[Any]] | None, keep_outputs: bool | None) -> RunRecord:
        # The scheduler is imported while the supervisor, which was started before, imports what workers need.
        from gristmill.backends.local.run import run

        processes, self._processes = self._processes or Processes(), None
        try:
            return run(self.config, processes, plan, initial_tasks, keep_outputs, self._several)
        finally:
            if processes.is_clear and self._several:
                self._processes = processes
            else:
                processes.close()


def modules_of(stages: Sequence[ProcessingStage[Any, Any]]) -> list[str]:
    """Modules of gristmill's own that workers will need for stages: those of others may do anything when imported."""
    return list(dict.fromkeys(n for one in stages if one.builtin for n in (type(one).__module__, *one.loads)))
