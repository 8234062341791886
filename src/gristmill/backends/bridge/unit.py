"""Running a batch of tasks of one step so that a bad one costs itself only."""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator, Sequence
from typing import Any, Protocol

from gristmill.backends.bridge.clerk import Standing
from gristmill.backends.bridge.reports import GivenUp, Made, Report
from gristmill.backends.engine.payload import load_task, pack
from gristmill.backends.step_runner import StageError, StepRunner, details, one_line, overrides
from gristmill.tasks import Task

Packed = tuple[str, bytes]
"""A task on its way: its label and its payload."""

_CHUNK_OUTPUTS = 256
_CHUNK_BYTES = 16 << 20
_CHUNK_NS = 200_000_000
_BAD_AT_ONCE = 8
_BAD_PARTS = 64
"""Parts of one task that may fail, without and with others that do not, before the search for bad items ends."""


class ClerkOffice(Protocol):
    """The clerk as workers see him: calls that return when he has taken note."""

    def begin(self, step: int, labels: list[str]) -> list[tuple[Standing, int]]: ...
    def report(self, report: Report) -> None: ...
    def fail(self, words: str) -> None: ...


class StoppedError(RuntimeError):
    """The run cannot continue; the clerk knows why."""


class StepBench:
    """A step in a worker, ready to run batches of its tasks.

    What a stage raises is tried again, then narrowed down and given up, with the clerk's knowledge: `run` itself
    raises nothing because of a task, but `StoppedError` if the code of a stage is wrong. A report precedes the outputs
    that it speaks of, so what follows from them is never reported first.
    """

    def __init__(self, runner: StepRunner, step: int, attempts: int, clerk: ClerkOffice) -> None:
        self.runner = runner
        self.step = step
        self.attempts = attempts
        self.clerk = clerk
        self._together = len(runner.stages) == 1 and overrides(runner.stages[0], "process_batch")

    def run(self, tasks: Sequence[Packed]) -> Iterator[Made]:
        """What the tasks become, as it is made."""
        if len(tasks) == 1 or not self._together:
            for task in tasks:
                yield from self._alone(task)
            return
        standings = [standing for standing, _ in self.clerk.begin(self.step, [label for label, _ in tasks])]
        if all(standing is Standing.NEW for standing in standings):
            yield from self._group(tasks)
            return
        again = [task for task, standing in zip(tasks, standings, strict=True) if standing is Standing.DONE]
        new = [task for task, standing in zip(tasks, standings, strict=True) if standing is Standing.NEW]
        for task, standing in zip(tasks, standings, strict=True):
            if standing not in (Standing.DONE, Standing.NEW):
                yield from self._alone(task)
        if again:
            yield from self._group(again)
        if new:
            yield from self.run(new)

    # A group ----------------------------------------------------------------------------------------------------

    def _group(self, tasks: Sequence[Packed]) -> Iterator[Made]:
        """Run tasks that were begun together; halves if that fails."""
        if len(tasks) == 1:
            yield from _Attempts(self, tasks[0], 0).run()
            return
        start = time.perf_counter_ns()
        try:
            loaded = [_load(task) for task in tasks]
            made = [self._made(output) for _, output in self.runner.run(loaded)]
        except StageError as error:
            self.check_run_continues(error)
            self.runner.reset_counts()
            middle = len(tasks) // 2
            yield from self._group(tasks[:middle])
            yield from self._group(tasks[middle:])
            return
        self._tell(tuple(label for label, _ in tasks), 0, made, start, ended=True)
        yield from made

    # A task -----------------------------------------------------------------------------------------------------

    def _alone(self, task: Packed) -> Iterator[Made]:
        label = task[0]
        standing, reported = self.clerk.begin(self.step, [label])[0]
        if standing is Standing.GIVEN_UP:
            words = f"its worker died {self.attempts} times while it ran this task alone"
            self._give_up_crashed(task, words, reported)
            return
        yield from _Attempts(self, task, reported).run()

    def _give_up_crashed(self, task: Packed, words: str, reported: int) -> None:
        label, payload = task
        given_up = GivenUp(
            label=label,
            start=0,
            stop=0,
            items=_items(task),
            stage=0,
            error=words,
            detail="",
            story=(words, "the task given up"),
            counts=[],
            payload=payload if self.runner.documents is not None else None,
            partly=reported > 0,
        )
        self.clerk.report(Report(self.step, (label,), reported, (), [], {}, 0, True, (given_up,), lost=not reported))

    def check_run_continues(self, error: StageError) -> None:
        """Raise `StoppedError` after an error that ends the run."""
        if error.ends_run:
            self.clerk.fail(error.error)
            raise StoppedError(error.error) from None

    # Telling ----------------------------------------------------------------------------------------------------

    def _made(self, task: Task[Any]) -> Made:
        try:
            payload = b"".join(pack(task))
            return Made(task.task_id, int(task.num_items), payload)
        except Exception as error:  # pickling runs the user's code, on whatever the stage put into the task
            words = f"what it returned cannot be passed on: {one_line(error)}"
            raise StageError(len(self.runner.stages) - 1, words, details(error)) from None

    def _tell(
        self,
        labels: tuple[str, ...],
        first: int,
        made: Sequence[Made],
        start: int,
        *,
        ended: bool,
        given_up: Sequence[GivenUp] = (),
        lost: bool = False,
    ) -> None:
        self.clerk.report(
            Report(
                step=self.step,
                labels=labels,
                first=first,
                made=tuple((x.label, x.items) for x in made),
                counts=self.runner.take_counts(),
                entries=self.runner.take_entries(),
                busy_ns=time.perf_counter_ns() - start,
                ended=ended,
                given_up=tuple(given_up),
                lost=lost,
            )
        )


Trial = Generator[Made, None, tuple[StageError | None, list[str]]]
"""What is made; at its end the last error, if there was one, and what happened."""


class _Attempts:
    """One task, tried as often as it may be, then in parts.

    Outputs are numbered in the order in which they are made, which is the same each time. Those that were reported
    before (by an attempt that failed, or by a worker that died) are not reported again.
    """

    def __init__(self, bench: StepBench, task: Packed, reported: int) -> None:
        self.bench = bench
        self.task = task
        self.label = task[0]
        self.reported = reported
        """Outputs that the clerk knows of."""
        self.passed = 0
        """Outputs that have gone on from here."""
        self.rest: list[Made] = []
        """Made by an attempt that succeeded, and not reported yet."""
        self.given_up: list[GivenUp] = []
        self.good_parts = 0
        self.start = time.perf_counter_ns()

    def run(self) -> Iterator[Made]:
        error, story = yield from self._try(0, 0, self.bench.attempts)
        if error is not None:
            yield from self._convict(0, 0, 0, error, story)
        lost = bool(self.given_up) and not self.good_parts and not self.reported
        yield from self._pass_on(self.rest, ended=True, lost=lost)

    def _try(self, start: int, stop: int, attempts: int) -> Trial:
        """Run the task, or a part of it."""
        story: list[str] = []
        error: StageError | None = None
        base = self.passed
        for attempt in range(1, attempts + 1):
            try:
                yield from self._attempt(start, stop, base)
                return None, story
            except StageError as failure:
                self.bench.check_run_continues(failure)
                error = failure
                story.append(f"attempt {attempt} failed: {failure.error}")
        return error, story

    def _attempt(self, start: int, stop: int, base: int) -> Iterator[Made]:
        bench, runner = self.bench, self.bench.runner
        runner.reset_counts()
        number = base
        self.rest = []
        size, begun = 0, time.perf_counter_ns()
        try:
            for _, task in runner.run([_load(self.task, start, stop)]):
                made = bench._made(task)
                number += 1
                if number <= self.reported:
                    runner.reset_counts()
                    if number > self.passed:
                        self.passed = number
                        yield made
                    continue
                self.rest.append(made)
                size += len(made.payload)
                slow = runner.streams and time.perf_counter_ns() - begun > _CHUNK_NS
                if slow or size > _CHUNK_BYTES or len(self.rest) >= _CHUNK_OUTPUTS:
                    yield from self._pass_on(self.rest)
                    size, begun = 0, time.perf_counter_ns()
        except StageError:
            self.rest = []
            raise

    def _pass_on(self, made: list[Made], *, ended: bool = False, lost: bool = False) -> Iterator[Made]:
        self.rest = []
        given_up = self.given_up if ended else ()
        first, start = self.reported, self.start
        self.bench._tell((self.label,), first, made, start, ended=ended, given_up=given_up, lost=lost)
        self.start = time.perf_counter_ns()
        self.reported += len(made)
        self.passed = max(self.passed, self.reported)
        yield from made

    # Parts ------------------------------------------------------------------------------------------------------

    def _convict(self, start: int, stop: int, base: int, error: StageError, story: list[str]) -> Iterator[Made]:
        """A task or part failed for good: try it in halves if it can be cut, else give it up.

        ``base`` outputs had been passed on before it was tried.
        """
        bench = self.bench
        partly = self.passed > base
        items = 0 if partly else stop - start if stop else self._cuttable()
        if items > 1 and self._is_worth_cutting():
            story = [*story, f"its {items} items are tried in halves"]
            middle = start + items // 2
            for a, b in ((start, middle), (middle, start + items)):
                before = self.passed
                failure, more = yield from self._try(a, b, bench.attempts if b - a == 1 else 1)
                if failure is None:
                    self.good_parts += 1
                    yield from self._pass_on(self.rest)
                else:
                    yield from self._convict(a, b, before, failure, [*story, *more])
            return
        what = f"items {start} to {stop - 1}" if stop else "the task"
        self.given_up.append(
            GivenUp(
                label=self.label,
                start=start,
                stop=stop,
                items=stop - start if stop else _items(self.task),
                stage=error.stage,
                error=error.error,
                detail=error.detail,
                story=(*story, f"{what} given up"),
                counts=bench.runner.take_counts(),
                payload=self.task[1] if bench.runner.documents is not None else None,
                partly=partly,
            )
        )
        bench.runner.reset_counts()

    def _cuttable(self) -> int:
        """Items of the whole task, if it can be cut."""
        if not all(stage.split_on_failure for stage in self.bench.runner.stages):
            return 0
        try:
            task = _load(self.task)
            return int(task.num_items) if type(task).slice is not Task.slice else 0
        except Exception:  # num_items may be the user's code, and broken
            return 0

    def _is_worth_cutting(self) -> bool:
        bad = len(self.given_up)
        return bad < _BAD_PARTS and (self.good_parts > 0 or bad < _BAD_AT_ONCE)


def _load(packed: Packed, start: int = 0, stop: int = 0) -> Task[Any]:
    """The task as it was when it came, or a part of it."""
    return load_task(*packed, start, stop)


def _items(packed: Packed) -> int:
    try:
        return int(_load(packed).num_items)
    except Exception:  # num_items may be the user's code, and broken
        return 1
