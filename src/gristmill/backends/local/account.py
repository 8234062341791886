"""The account of a run: what each stage took in, gave out, dropped and failed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gristmill.backends.base import Failure, Plan, StageStats, StepStats
from gristmill.scheduling.state import State, StepRec

_KEPT_FAILURES = 1000


class Account:
    """Collects what workers report and joins it with what the scheduler knows.

    Workers count for every stage what finished attempts did. The scheduler counts tasks of each step exactly once;
    its figures stand for the first stage of a step, the workers' for the fused ones behind it.
    """

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.stages = [[StageStats(stage.name) for stage in step.stages] for step in plan.steps]
        self.failures: list[Failure] = []
        self.failures_total = 0
        self.peak_worker_bytes = [0] * len(plan.steps)

    def add(self, step: int, counts: Sequence[Sequence[int]]) -> None:
        for stage, (tasks_in, items_in, done, tasks_out, items_out, dropped, busy_ns) in zip(
            self.stages[step], counts, strict=True
        ):
            stage.tasks_in += tasks_in
            stage.items_in += items_in
            stage.tasks_done += done
            stage.tasks_out += tasks_out
            stage.items_out += items_out
            stage.tasks_dropped += dropped
            stage.busy_s += busy_ns / 1e9

    def add_hooks(self, counts: Sequence[Sequence[int]]) -> None:
        """Setups and teardowns that a worker did in its life."""
        for step, stage, setups, teardowns in counts:
            self.stages[step][stage].setups += setups
            self.stages[step][stage].teardowns += teardowns

    def fail(self, step: int, stage: int, failure: Failure, counts: Sequence[Sequence[int]]) -> None:
        """A task was given up in one of the stages of a step; ``counts`` are those of its last attempt, if known."""
        self.failures_total += 1
        if len(self.failures) < _KEPT_FAILURES:
            self.failures.append(failure)
        stats = self.stages[step]
        if counts:
            self.add(step, counts)
        else:
            for before in stats[:stage]:
                before.tasks_in += 1
                before.tasks_done += 1
                before.tasks_out += 1
                before.items_in += failure.items
                before.items_out += failure.items
            stats[stage].tasks_in += 1
            stats[stage].items_in += failure.items
        stats[stage].tasks_failed += 1
        stats[stage].items_failed += failure.items

    def steps(self, state: State) -> list[StepStats]:
        """The figures of a run that has ended."""
        return [self._step(state, rec, stages) for rec, stages in zip(state.steps, self.stages, strict=True)]

    def _step(self, state: State, rec: StepRec, stages: list[StageStats]) -> StepStats:
        first = stages[0]
        later = sum(stage.tasks_failed for stage in stages[1:])
        first.tasks_in = rec.tasks_in
        first.tasks_cancelled = rec.tasks_cancelled
        first.tasks_failed = max(0, rec.tasks_failed - later) if later else rec.tasks_failed
        first.tasks_done = rec.tasks_in - first.tasks_failed - first.tasks_cancelled
        stages[-1].tasks_out = rec.outputs
        available = rec.available_us if rec.dedicated else state.shared_available_us
        timeline = rec.timeline if rec.dedicated else state.shared_timeline
        return StepStats(
            name=self.plan.steps[rec.index].name,
            stages=stages,
            units=rec.units_done,
            busy_share=min(1.0, rec.busy_us / available) if available else 0.0,
            service_s_mean=rec.busy_us / 1e6 / rec.tasks_done if rec.tasks_done else 0.0,
            service_s_max=rec.service_max_us / 1e6,
            queue_s_mean=rec.queue_us / 1e6 / rec.tasks_in if rec.tasks_in else 0.0,
            queue_s_max=rec.queue_max_us / 1e6,
            workers=[(at / 1e6, n) for at, n in timeline],
            workers_started=rec.workers_started,
            peak_worker_bytes=self.peak_worker_bytes[rec.index],
        )


def failure_of(label: str, start: int, stop: int, stage: str, items: int, error: str, detail: str, story: Any) -> Failure:
    """A failure with the part of the task that is at fault in its id."""
    part = f"[{start}]" if stop - start == 1 else f"[{start}:{stop}]" if stop else ""
    return Failure(label + part, stage, error, detail, tuple(story), items)
