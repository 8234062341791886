"""An executor without processes: the engine's own way to run steps and to account for documents, one task at a time.

What it writes is what other executors write; starting theirs takes a hundred times as long as the work of a small test.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import Any

from gristmill.backends.base import Executor, Plan, RunRecord
from gristmill.backends.bridge.accounts import RunAccounts
from gristmill.backends.bridge.collector import Collector
from gristmill.backends.bridge.unit import UnitRunner
from gristmill.backends.engine.account import KeptOutputs
from gristmill.backends.engine.names import LocalNames
from gristmill.backends.step_runner import StepRunner
from gristmill.errors import PipelineError
from gristmill.stages.core import WorkerMetadata
from gristmill.tasks import Task


class InProcess(Executor):
    """Runs step after step, each on all tasks, in this process."""

    on_cluster = False

    def __init__(self, ignore_failures: bool = False) -> None:
        self._ignore_failures = ignore_failures
        self.plans: list[Plan] = []

    @property
    def ignore_failures(self) -> bool:
        return self._ignore_failures

    def execute(self, plan: Plan, initial_tasks: Iterable[Task[Any]] | None, keep_outputs: bool | None) -> RunRecord:
        self.plans.append(plan)
        accounts = RunAccounts(plan, self.ignore_failures)
        collector = Collector(b"", [1] * len(plan.steps))
        outputs = KeptOutputs(keep_outputs, initial_tasks is not None)
        local = LocalNames()
        try:
            tasks = list(accounts.pack_initial(initial_tasks, local))
            for number, (step, documents) in enumerate(zip(plan.steps, plan.documents(), strict=True)):
                if not tasks:
                    break
                runner = StepRunner(copy.deepcopy(step.stages), None, documents)
                for stage in runner.stages:
                    stage.preload()
                runner.setup(WorkerMetadata("0", "here", 1.0))
                collector.set_up(number, str(number))
                tasks = [x for task in tasks for x in UnitRunner(runner, number, 1, collector).run([task])]
                collector.torn_down(str(number), [error.error for error in runner.teardown()])
                accounts.add(collector.take_update())
            for label, payload in tasks if outputs.wanted else ():
                outputs.add(label, payload)
            if left := collector.running():
                raise PipelineError(f"tasks that did not end: {left}")
            return accounts.record(outputs)
        finally:
            accounts.close()
            local.close()
