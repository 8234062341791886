"""An executor with plain loops in this process: what it runs, it runs in order and at once."""

import itertools
import traceback
from collections.abc import Iterable

import pytest

from gristmill.backends.base import Executor, Failure, Plan, RunRecord, StageStats, StepStats
from gristmill.tasks import EmptyTask, Task


class InProcess(Executor):
    def __init__(self, ignore_failures: bool = False, take: int | None = None) -> None:
        self._ignore_failures = ignore_failures
        self.take = take
        """How many source tasks to run at most."""
        self.plans: list[Plan] = []
        self.sources: list[Iterable[Task] | None] = []

    @property
    def ignore_failures(self) -> bool:
        return self._ignore_failures

    def execute(self, plan, initial_tasks, keep_outputs):
        self.plans.append(plan)
        self.sources.append(initial_tasks)
        stages = [stage for step in plan.steps for stage in step.stages]
        stats = {stage.name: StageStats(stage.name) for stage in stages}
        failures: list[Failure] = []
        tasks = list(itertools.islice([EmptyTask()] if initial_tasks is None else initial_tasks, self.take))
        for number, task in enumerate(tasks):
            task.task_id = str(number)
        for stage in stages:
            stage.setup()
            tasks = [out for task in tasks for out in self._run(stage, task, stats[stage.name], failures)]
            stage.teardown()
        keep = keep_outputs is not False and (keep_outputs or initial_tasks is not None)
        return RunRecord(
            name=plan.name,
            steps=[StepStats(step.name, [stats[stage.name] for stage in step.stages]) for step in plan.steps],
            wall_s=1.0,
            first_output_s=0.5,
            failures=failures[:100],
            failures_total=len(failures),
            decisions=[],
            peak_bytes_in_flight=0,
            budget_bytes=0,
            peak_memory_bytes=0,
            worker_deaths=0,
            outputs=tasks if keep else None,
            outputs_dropped="" if keep else "they did not come from initial_tasks",
        )

    def _run(self, stage, task, stats, failures):
        stats.tasks_in += 1
        stats.items_in += task.num_items
        try:
            (result,) = stage.process_batch([task])
            single = result is None or isinstance(result, Task)
            outs = [r for r in [result] if r is not None] if single else list(result)
        except Exception as error:
            stats.tasks_failed += 1
            stats.items_failed += task.num_items
            story = ("ran on worker 0", "failed", "given up after 1 attempt")
            words = f"{type(error).__name__}: {error}"
            failures.append(Failure(task.task_id, stage.name, words, traceback.format_exc(), story, task.num_items))
            return []
        stats.tasks_done += 1
        stats.tasks_dropped += not outs
        stats.tasks_out += len(outs)
        for position, out in enumerate(outs):
            out.task_id = task.task_id if single else f"{task.task_id}.{position}"
            stats.items_out += out.num_items
        return outs


@pytest.fixture
def executor() -> InProcess:
    return InProcess()


@pytest.fixture(scope="session")
def make_executor() -> type[InProcess]:
    return InProcess
