"""The account of the stages of a step: counts, and what happened to documents, since the last report."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from gristmill.backends.stage_errors import Interrupt, StageError, stage_error
from gristmill.ledger.excluded import ExcludedFiles
from gristmill.ledger.scores import ScoreFiles
from gristmill.ledger.tally import LostIdentity, StageTally, Tally
from gristmill.stages.core import ProcessingStage, accounts_for_all
from gristmill.stages.protocols import Sink
from gristmill.stages.text.io.dropped_columns import take_out_dropped
from gristmill.tasks import DocumentBatch, Task
from gristmill.tasks.names import block_of

_END = object()


@dataclass(slots=True)
class StageCounts:
    """Counts of one stage since the last report."""

    tasks_in: int = 0
    items_in: int = 0
    tasks_done: int = 0
    tasks_out: int = 0
    items_out: int = 0
    dropped: int = 0
    busy_ns: int = 0

    def as_tuple(self) -> tuple[int, ...]:
        return (
            self.tasks_in,
            int(self.items_in),
            self.tasks_done,
            self.tasks_out,
            int(self.items_out),
            self.dropped,
            self.busy_ns,
        )


@dataclass(frozen=True)
class Documents:
    """The facts that a step needs to account for documents."""

    step: int
    is_last_step: bool
    output: Sink[Any, Any] | None
    """The stage that writes; what is dropped or bad is put beside its files."""
    first_stage: int = 0
    """The number of its first stage in the plan."""
    has_rules: bool = False
    """Whether a stage of the plan has rules, so that scores are stored."""

    def excluded(self) -> ExcludedFiles | None:
        if self.output is None:
            return None
        scores = ScoreFiles(self.first_stage) if self.has_rules and self.output.scores else None
        return ExcludedFiles(self.output, self.step, scores)


@dataclass(slots=True)
class StageCall:
    """One call of a stage: `result` for each task that it gave, in order, then `end`."""

    index: int
    columns: Sequence[str]
    """The columns that a user's stage was given."""
    tally: StageTally | None

    def result(self, task: Task[Any]) -> None:
        if self.columns and isinstance(task, DocumentBatch):
            take_out_dropped(task, self.columns)
        if self.tally is not None:
            try:
                self.tally.result(task)
            except LostIdentity as error:
                raise StageError(self.index, str(error), ends_run=True) from None

    def end(self) -> None:
        if self.tally is not None:
            self.tally.end()


class StageAccounting:
    """Counts what the stages of a step do, and gives ids to the tasks that they make.

    A stage that returns one task passes the id of its input on; the n-th of several is ``<id>.<n>``.
    """

    def __init__(
        self,
        stages: Sequence[ProcessingStage[Any, Any]],
        documents: Documents | None = None,
        note_stage: Callable[[int], None] | None = None,
    ) -> None:
        self.stages = list(stages)
        self.documents = documents
        self.counts = [StageCounts() for _ in self.stages]
        self.current = 0
        """The stage that is running."""
        self.streams = False
        """The last output came from a generator, which may take its time for the next one."""
        self._tally = Tally(documents.is_last_step) if documents is not None else None
        self._excluded: ExcludedFiles | None = None
        self._note_stage = note_stage if len(self.stages) > 1 else None

    def take_counts(self) -> list[tuple[int, ...]]:
        """The counts since they were last taken."""
        counts = [c.as_tuple() for c in self.counts]
        self.counts = [StageCounts() for _ in self.stages]
        return counts

    def take_entries(self) -> dict[int, dict[str, Any]]:
        """The account of documents by block since it was last taken."""
        return self._tally.take() if self._tally is not None else {}

    def reset_counts(self) -> None:
        self.counts = [StageCounts() for _ in self.stages]
        if self._tally is not None:
            self._tally.reset()

    def _write_excluded(self, excluded: ExcludedFiles) -> None:
        """Write what is put beside the output of a task that has ended."""
        if self._tally is not None:
            excluded.write()
            for label, file in excluded.written:
                self._tally.entry(block_of(label)).add_file(file)

    def _call(self, index: int, task: Task[Any]) -> StageCall:
        """Note what a stage is given, before it is called: it may change the task in place."""
        stage = self.stages[index]
        columns = task.columns if not stage.builtin and isinstance(task, DocumentBatch) else ()
        if self._tally is None:
            return StageCall(index, columns, None)
        before = Tally.before(task, is_compared=not accounts_for_all(stage))
        is_last = index == len(self.stages) - 1
        return StageCall(index, columns, self._tally.stage(stage, index, is_last, before, self._excluded))

    def _outputs(self, index: int, ident: str, result: Any, call: StageCall) -> Iterator[Task[Any]]:
        """The tasks in what a stage returned for the task ``ident``, with their ids."""
        yield from self._each(index, ident, result, call)
        call.end()

    def _each(self, index: int, ident: str, result: Any, call: StageCall) -> Iterator[Task[Any]]:
        counts = self.counts[index]
        if result is None:
            counts.tasks_done += 1
            counts.dropped += 1
            return
        if isinstance(result, Task):
            call.result(result)
            counts.tasks_done += 1
            counts.tasks_out += 1
            counts.items_out += result.num_items
            result.task_id = ident
            self.streams = False
            yield result
            return
        if not isinstance(result, list | tuple | Iterator):
            raise self._contract(index, f"returned a {type(result).__name__}")
        streams = not isinstance(result, (list, tuple))
        produced = 0
        iterator = iter(result)
        while True:
            self._enter(index)
            start = time.perf_counter_ns()
            try:
                output = next(iterator, _END)
            except Interrupt:
                raise
            except BaseException as error:  # a generator is the user's code
                raise stage_error(index, error) from None
            counts = self.counts[index]
            counts.busy_ns += time.perf_counter_ns() - start
            if output is _END:
                break
            if not isinstance(output, Task):
                raise self._contract(index, f"returned several things, one of them a {type(output).__name__}")
            call.result(output)
            output.task_id = f"{ident}.{produced}"
            produced += 1
            counts.tasks_out += 1
            counts.items_out += output.num_items
            self.streams = streams
            yield output
        counts.tasks_done += 1
        if not produced:
            counts.dropped += 1

    def _enter(self, index: int) -> None:
        self.current = index
        if self._note_stage is not None:
            self._note_stage(index)

    def _contract(self, index: int, what: str) -> StageError:
        name = self.stages[index].name
        return StageError(index, f"TypeError: '{name}' {what}; it must return a Task, several of them, or None")
