"""Running a unit, a batch of tasks of one step, so that a task that fails does not fail the others."""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator, Sequence
from typing import Any, Protocol

from gristmill.backends.bridge.collector import GivenUp, PackedTask, Report, TaskStatus
from gristmill.backends.engine.payload import load_task, pack
from gristmill.backends.stage_errors import StageError, details, one_line
from gristmill.backends.step_runner import StepRunner, overrides
from gristmill.scheduling import failure_policy as policy
from gristmill.scheduling.failure_policy import Response
from gristmill.tasks import Task

_CHUNK_OUTPUTS = 256
_CHUNK_BYTES = 16 << 20
_CHUNK_NS = 200_000_000


class CollectorClient(Protocol):
    """The collector as workers see it: calls that return when it has stored what they report."""

    def begin(self, step: int, labels: list[str]) -> list[tuple[TaskStatus, int]]: ...
    def report(self, report: Report) -> None: ...
    def fail(self, reason: str) -> None: ...


class StoppedError(RuntimeError):
    """The run cannot continue; the collector knows why."""


class UnitRunner:
    """Runs units of one step in a worker.

    If a stage raises, the task is tried again, then split, then given up; `run` raises nothing because of a task, but
    `StoppedError` if the code of a stage is wrong. A report precedes the outputs that it lists, so the results of a
    later step are never reported first.
    """

    def __init__(self, runner: StepRunner, step: int, attempts: int, collector: CollectorClient) -> None:
        self.runner = runner
        self.step = step
        self.attempts = attempts
        self.collector = collector
        self.retries = 0
        """Tasks, or parts of them, that were tried again since the last report."""
        self._together = len(runner.stages) == 1 and overrides(runner.stages[0], "process_batch")

    def run(self, tasks: Sequence[PackedTask]) -> Iterator[PackedTask]:
        """Yield the outputs of the tasks as they are made."""
        if len(tasks) == 1 or not self._together:
            for task in tasks:
                yield from self._run_alone(task)
            return
        found = self.collector.begin(self.step, [task.label for task in tasks])
        with_status = [(task, status) for task, (status, _) in zip(tasks, found, strict=True)]
        new = [task for task, status in with_status if status is TaskStatus.NEW]
        if len(new) == len(tasks):
            yield from self._run_group(tasks)
            return
        for task, status in with_status:
            if status not in (TaskStatus.DONE, TaskStatus.NEW):
                yield from self._run_alone(task)
        if done := [task for task, status in with_status if status is TaskStatus.DONE]:
            yield from self._run_group(done)
        if new:
            yield from self.run(new)

    # A group ----------------------------------------------------------------------------------------------------

    def _run_group(self, tasks: Sequence[PackedTask]) -> Iterator[PackedTask]:
        """Run tasks that were begun together. If that fails, run each half."""
        if len(tasks) == 1:
            yield from _TaskAttempts(self, tasks[0], 0).run()
            return
        start = time.perf_counter_ns()
        try:
            loaded = [load_task(*task, 0, 0) for task in tasks]
            outputs = [self.packed(output) for _, output in self.runner.run(loaded)]
        except StageError as error:
            self.check_run_continues(error)
            self.runner.reset_counts()
            self.retries += len(tasks)
            for half in policy.halves_of_batch(tasks):
                yield from self._run_group(half)
            return
        self.report(tuple(task.label for task in tasks), 0, outputs, start, ended=True)
        yield from outputs

    # A task -----------------------------------------------------------------------------------------------------

    def _run_alone(self, task: PackedTask) -> Iterator[PackedTask]:
        status, reported = self.collector.begin(self.step, [task.label])[0]
        if status is TaskStatus.GIVEN_UP:
            self._give_up_crashed(task, reported)
        else:
            yield from _TaskAttempts(self, task, reported).run()

    def _give_up_crashed(self, task: PackedTask, reported: int) -> None:
        error = f"its worker died {self.attempts} times while it ran this task alone"
        given_up = GivenUp(
            label=task.label,
            start=0,
            stop=0,
            items=_items(task),
            stage=0,
            error=error,
            detail="",
            story=(error, policy.giving_up_note(0, 0)),
            counts=[],
            payload=self.kept_payload(task),
            partly=reported > 0,
        )
        report = Report(self.step, (task.label,), reported, (), [], {}, 0, True, (given_up,), lost=not reported)
        self.collector.report(report)

    def kept_payload(self, task: PackedTask) -> bytes | None:
        """The payload of a task that is given up, where documents are accounted for."""
        return task.payload if self.runner.documents is not None else None

    def check_run_continues(self, error: StageError) -> None:
        """Raise `StoppedError` after an error that ends the run."""
        if error.ends_run:
            self.collector.fail(error.error)
            raise StoppedError(error.error) from None

    # Reports ----------------------------------------------------------------------------------------------------

    def packed(self, task: Task[Any]) -> PackedTask:
        """Pack an output. Raises `StageError`."""
        try:
            return PackedTask(task.task_id, b"".join(pack(task)))
        except Exception as error:  # pickling runs the user's code, on whatever the stage put into the task
            reason = f"what it returned cannot be passed on: {one_line(error)}"
            raise StageError(len(self.runner.stages) - 1, reason, details(error)) from None

    def report(
        self,
        labels: tuple[str, ...],
        first: int,
        outputs: Sequence[PackedTask],
        start: int,
        *,
        ended: bool,
        given_up: Sequence[GivenUp] = (),
        lost: bool = False,
    ) -> None:
        retries, self.retries = self.retries, 0
        self.collector.report(
            Report(
                step=self.step,
                labels=labels,
                first=first,
                outputs=tuple(output.label for output in outputs),
                counts=self.runner.take_counts(),
                entries=self.runner.take_entries(),
                busy_ns=time.perf_counter_ns() - start,
                ended=ended,
                given_up=tuple(given_up),
                lost=lost,
                retries=retries,
            )
        )


Trial = Generator[PackedTask, None, tuple[StageError | None, list[str]]]
"""Yields outputs; returns the last error, if there was one, and the story of the attempts."""


class _TaskAttempts:
    """One task, tried as often as allowed, then in parts.

    Outputs are numbered in the order in which they are made, which is the same in each attempt. Those that were
    reported before (by an attempt that failed, or by a worker that died) are not reported again.
    """

    def __init__(self, unit: UnitRunner, task: PackedTask, reported: int) -> None:
        self.unit = unit
        self.task = task
        self.reported = reported
        """Outputs that the collector knows."""
        self.passed = 0
        """Outputs that were passed on from here."""
        self.rest: list[PackedTask] = []
        """Outputs of an attempt that succeeded, not reported yet."""
        self.given_up: list[GivenUp] = []
        self.good_parts = 0
        self.start = time.perf_counter_ns()

    def run(self) -> Iterator[PackedTask]:
        error, story = yield from self._try(0, 0)
        if error is not None:
            yield from self._split_or_give_up(0, 0, 0, error, story)
        lost = bool(self.given_up) and not self.good_parts and not self.reported
        yield from self._pass_on(self.rest, ended=True, lost=lost)

    def _try(self, start: int, stop: int) -> Trial:
        """Run the task, or a part of it."""
        story: list[str] = []
        base = self.passed
        allowed = policy.attempts_allowed(self.unit.attempts, stop - start, is_part=bool(stop))
        while True:
            try:
                yield from self._attempt(start, stop, base)
                return None, story
            except StageError as error:
                self.unit.check_run_continues(error)
                story.append(f"attempt {len(story) + 1} failed: {error.error}")
                if policy.after_error(1, len(story), allowed) is Response.FAIL:
                    return error, story
                self.unit.retries += 1

    def _attempt(self, start: int, stop: int, base: int) -> Iterator[PackedTask]:
        runner = self.unit.runner
        runner.reset_counts()
        number = base
        self.rest = []
        size, begun = 0, time.perf_counter_ns()
        try:
            for _, task in runner.run([load_task(*self.task, start, stop)]):
                output = self.unit.packed(task)
                number += 1
                if number <= self.reported:
                    runner.reset_counts()
                    if number > self.passed:
                        self.passed = number
                        yield output
                    continue
                self.rest.append(output)
                size += len(output.payload)
                slow = runner.streams and time.perf_counter_ns() - begun > _CHUNK_NS
                if slow or size > _CHUNK_BYTES or len(self.rest) >= _CHUNK_OUTPUTS:
                    yield from self._pass_on(self.rest)
                    size, begun = 0, time.perf_counter_ns()
        except StageError:
            self.rest = []
            raise

    def _pass_on(self, outputs: list[PackedTask], *, ended: bool = False, lost: bool = False) -> Iterator[PackedTask]:
        self.rest = []
        given_up = self.given_up if ended else ()
        self.unit.report(
            (self.task.label,), self.reported, outputs, self.start, ended=ended, given_up=given_up, lost=lost
        )
        self.start = time.perf_counter_ns()
        self.reported += len(outputs)
        self.passed = max(self.passed, self.reported)
        yield from outputs

    # Parts ------------------------------------------------------------------------------------------------------

    def _split_or_give_up(
        self, start: int, stop: int, base: int, error: StageError, story: list[str]
    ) -> Iterator[PackedTask]:
        """Try each half of a task or part whose attempts all failed; give it up if it cannot be split.

        ``base`` outputs had been passed on before it was tried.
        """
        partly = self.passed > base
        items = 0 if partly else stop - start if stop else self._splittable_items()
        if items <= 1 or not policy.is_worth_splitting(self.good_parts, len(self.given_up)):
            self._give_up(start, stop, error, story, partly)
            return
        story = [*story, policy.splitting_note(items)]
        self.unit.retries += 2
        for a, b in policy.halves_of_items(start, items):
            before = self.passed
            failure, more = yield from self._try(a, b)
            if failure is None:
                self.good_parts += 1
                yield from self._pass_on(self.rest)
            else:
                yield from self._split_or_give_up(a, b, before, failure, [*story, *more])

    def _give_up(self, start: int, stop: int, error: StageError, story: list[str], partly: bool) -> None:
        self.given_up.append(
            GivenUp(
                label=self.task.label,
                start=start,
                stop=stop,
                items=stop - start if stop else _items(self.task),
                stage=error.stage,
                error=error.error,
                detail=error.detail,
                story=(*story, policy.giving_up_note(start, stop)),
                counts=self.unit.runner.take_counts(),
                payload=self.unit.kept_payload(self.task),
                partly=partly,
            )
        )
        self.unit.runner.reset_counts()

    def _splittable_items(self) -> int:
        """Items of the whole task; 0 if it cannot be split."""
        if not all(stage.split_on_failure for stage in self.unit.runner.stages):
            return 0
        try:
            task = load_task(*self.task, 0, 0)
            return int(task.num_items) if type(task).slice is not Task.slice else 0
        except Exception:  # num_items may be the user's code, and broken
            return 0


def _items(task: PackedTask) -> int:
    try:
        return int(load_task(*task, 0, 0).num_items)
    except Exception:  # num_items may be the user's code, and broken
        return 1
