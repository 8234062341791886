"""The account of a run: what each stage received, returned, dropped and failed on, and the final tasks."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from gristmill.backends.accounting import StageCounts
from gristmill.backends.base import Failure, Plan, StageStats, StepStats
from gristmill.backends.engine.payload import Payload, unpack
from gristmill.backends.engine.protocol import Counts
from gristmill.ledger.run import RunLedger
from gristmill.metrics.rates import InputProgress
from gristmill.scheduling.records import StepRec, WorkerRec
from gristmill.scheduling.state import State
from gristmill.tasks import Task

_KEPT_FAILURES = 1000
_ADDED_AT_ONCE = 500
_COUNTS = len(StageCounts().as_tuple())


class RunAccount:
    """Adds up the counts that workers report and joins them with those of the scheduler.

    Workers count for every stage what finished attempts did. The scheduler counts tasks of each step exactly once;
    its figures are used for the first stage of a step, the workers' for the fused stages after it.
    """

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self._stages = [[StageStats(stage.name) for stage in step.stages] for step in plan.steps]
        self._reported: list[list[int]] = [[] for _ in plan.steps]
        """Counts by step that are not added up yet, one after the other: many at a time cost less."""
        self._open: dict[int, tuple[int, list[int]]] = {}
        """Of units that delivered part of their outputs: the step and, by stage, tasks that began and are not done."""
        self.failures: list[Failure] = []
        self.failures_total = 0
        self.peak_worker_bytes = [0] * len(plan.steps)
        self.worker_bytes: dict[int | None, int] = {}
        """The memory that workers use now, by the step that they run. None: of shared workers that run nothing."""

    @property
    def stages(self) -> list[list[StageStats]]:
        """The account of each stage, by step."""
        for step in range(len(self._stages)):
            self._add_up(step)
        return self._stages

    def _add_up(self, step: int) -> None:
        reported, self._reported[step] = self._reported[step], []
        period = _COUNTS * len(self._stages[step])
        for i, stage in enumerate(self._stages[step]):
            first = i * _COUNTS
            counts = StageCounts(*[sum(reported[k::period]) for k in range(first, first + _COUNTS)])
            stage.tasks_in += counts.tasks_in
            stage.items_in += counts.items_in
            stage.tasks_done += counts.tasks_done
            stage.tasks_out += counts.tasks_out
            stage.items_out += counts.items_out
            stage.tasks_dropped += counts.dropped
            stage.busy_s += counts.busy_ns / 1e9

    def add(self, step: int, counts: Counts) -> None:
        reported = self._reported[step]
        for of_stage in counts:
            reported += of_stage
        if len(reported) >= _ADDED_AT_ONCE * _COUNTS:
            self._add_up(step)

    def add_part(self, step: int, unit: int, counts: Counts) -> None:
        """Add what a unit did since the last report; it continues."""
        self.add(step, counts)
        _, left = self._open.setdefault(unit, (step, [0] * len(counts)))
        for i, values in enumerate(counts):
            stage = StageCounts(*values)
            left[i] += stage.tasks_in - stage.tasks_done

    def has_part(self, unit: int) -> bool:
        """Whether a unit has delivered part of its outputs."""
        return unit in self._open

    def add_last(self, step: int, unit: int, counts: Counts) -> None:
        """Add what a unit did since the last report; it has ended."""
        self.add(step, counts)
        if self._open:
            self._open.pop(unit, None)

    def released(self, task: int) -> None:
        """Note the end of a task. If it was neither done nor failed, it was cancelled in all stages it had reached."""
        if self._open and task in self._open:
            step, left = self._open.pop(task)
            for stage, n in zip(self._stages[step], left, strict=True):
                stage.tasks_cancelled += n

    def set_up(self, step: int, stages: int | None = None) -> None:
        """A worker set up a step; with ``stages`` only so many, which it tore down because the next one failed."""
        for stats in self._stages[step][:stages]:
            stats.setups += 1
            stats.teardowns += stages is not None

    def note_memory(self, workers: Mapping[int, WorkerRec], used: Mapping[int, int]) -> dict[int | None, int]:
        """Note the memory that workers use, by their ids. Return it by the step that they run, as `worker_bytes`."""
        by_step: dict[int | None, int] = {}
        for ident, size in used.items():
            w = workers.get(ident)
            if w is None:
                continue
            step = w.assigned[0].step if w.assigned else w.step
            if w.assigned and size > self.peak_worker_bytes[w.assigned[0].step]:
                self.peak_worker_bytes[w.assigned[0].step] = size
            by_step[step] = by_step.get(step, 0) + size
        return by_step

    def torn_down(self, step: int) -> None:
        for stats in self._stages[step]:
            stats.teardowns += 1

    def fail(self, step: int, stage: int, failure: Failure, unit: int, counts: Counts) -> None:
        """Note that a task was given up in one of the stages of a step.

        ``counts`` are those of its last attempt; there are none if its worker died. Then only the stage is known, and
        the task must have passed the stages before it.
        """
        self.failures_total += 1
        if len(self.failures) < _KEPT_FAILURES:
            self.failures.append(failure)
        stats = self._stages[step]
        if counts:
            self.add_part(step, unit, counts)
        _, left = self._open.pop(unit, (step, [0] * len(stats)))
        for i in range(stage, -1, -1):
            if left[i]:
                break
            left[i] = 1
            stats[i].tasks_in += 1
            stats[i].items_in += failure.items
            if i:
                stats[i - 1].tasks_out += 1
                stats[i - 1].items_out += failure.items
        for before, n in zip(stats[:stage], left, strict=False):
            before.tasks_done += n
        stats[stage].tasks_failed += 1
        stats[stage].items_failed += failure.items

    def steps(self, state: State) -> list[StepStats]:
        """The figures of a run that has ended."""
        return [self._step(state, rec, stages) for rec, stages in zip(state.steps, self.stages, strict=True)]

    def _step(self, state: State, rec: StepRec, stages: list[StageStats]) -> StepStats:
        first = stages[0]
        first.tasks_in = rec.counts.tasks_in
        first.tasks_cancelled = rec.counts.tasks_cancelled
        # Slices of a task that failed count above one by one, the task itself only if none of it got through.
        first.tasks_failed = min(first.tasks_failed, rec.counts.tasks_failed)
        first.tasks_done = rec.counts.tasks_done + rec.counts.tasks_failed - first.tasks_failed
        stages[-1].tasks_out = rec.counts.outputs
        group = rec if rec.dedicated else state.shared
        available = group.available_us
        return StepStats(
            name=self.plan.steps[rec.index].name,
            stages=stages,
            units=rec.counts.units_done,
            busy_share=min(1.0, rec.times.busy_us / available) if available else 0.0,
            service_s_mean=rec.times.busy_us / 1e6 / rec.counts.tasks_done if rec.counts.tasks_done else 0.0,
            service_s_max=rec.times.service_max_us / 1e6,
            queue_s_mean=rec.times.queue_us / 1e6 / rec.counts.tasks_in if rec.counts.tasks_in else 0.0,
            queue_s_max=rec.times.queue_max_us / 1e6,
            workers=[(at / 1e6, n) for at, n in group.timeline],
            workers_started=rec.started,
            peak_worker_bytes=self.peak_worker_bytes[rec.index],
        )


def input_progress(ledger: RunLedger | None) -> InputProgress | None:
    """Return how far a run is in its input. None for a pipeline that does not begin with a reader."""
    if ledger is None:
        return None
    read, kept, done = ledger.so_far()
    blocks = len(ledger.blocks), ledger.blocks_total
    return InputProgress(read, kept, *blocks, done, ledger.bytes_total, ledger.bytes_resumed)


def failure_of(
    label: str, start: int, stop: int, stage: str, items: int, error: str, detail: str, story: Any
) -> Failure:
    """Return a failure whose id names the part of the task that is at fault."""
    part = f"[{start}]" if stop - start == 1 else f"[{start}:{stop}]" if stop else ""
    return Failure(label + part, stage, error, detail, tuple(story), items)


_FAILURES_SHOWN = 5
_FAILURES_EVERY_S = 10.0


class FailureLines:
    """Shows the first few failures of each stage as they come; of the others, now and then, how many there were."""

    def __init__(self, show: Callable[[str], None]) -> None:
        self._show = show
        self._seen: Counter[str] = Counter()
        self._not_shown: Counter[str] = Counter()
        self._show_at = 0.0

    def add(self, stage: str, text: str, now: float) -> None:
        self._seen[stage] += 1
        if self._seen[stage] <= _FAILURES_SHOWN:
            self._show(text)
            return
        if not self._not_shown:
            self._show_at = max(self._show_at, now)
        self._not_shown[stage] += 1

    def catch_up(self, now: float) -> None:
        """Show in one line the failures that were not shown yet, unless that was done a moment ago."""
        if self._not_shown and now >= self._show_at:
            self._show(
                "; ".join(f"{stage}: {n:,} more task{'s' * (n != 1)} failed" for stage, n in self._not_shown.items())
            )
            self._not_shown.clear()
            self._show_at = now + _FAILURES_EVERY_S


AUTO_BYTES = 64 << 20


class KeptOutputs:
    """Keeps final tasks: all if asked to, by default while they are small, or none."""

    def __init__(self, keep: bool | None, from_initial_tasks: bool) -> None:
        self._limit = AUTO_BYTES if keep is None else None
        self.wanted = from_initial_tasks if keep is None else keep
        self.reason = ""
        if not self.wanted:
            self.reason = "the run had no initial_tasks; keep_outputs=True keeps them"
        if keep is False:
            self.reason = "keep_outputs is False"
        self._bytes = 0
        self._tasks: list[tuple[str, Payload]] = []

    def add(self, label: str, payload: Payload) -> None:
        self._tasks.append((label, payload))
        self._bytes += len(payload) + 256
        if self._limit is not None and self._bytes > self._limit:
            self.wanted = False
            self._tasks.clear()
            self.reason = f"they are larger than {self._limit >> 20} MB; keep_outputs=True keeps them all the same"

    def tasks(self) -> list[Task[Any]] | None:
        """In the order of their ids, or None if they were not kept."""
        if not self.wanted:
            return None
        self._tasks.sort(key=lambda kept: _order(kept[0]))
        loaded = []
        for label, payload in self._tasks:
            task: Task[Any] = unpack(payload)
            task.task_id = label
            loaded.append(task)
        return loaded


def _order(label: str) -> tuple[tuple[bool, int], ...]:
    """Ids in the order of the source: ``2`` before ``10``, ``2.1`` before ``2.10``, ``2[0:5]`` before ``2[5:10]``."""
    return tuple((start != "", int(number or start)) for start, number in _PARTS.findall(label))


_PARTS = re.compile(r"\[(?P<start>\d+):\d+\]|(?P<number>\d+)")
