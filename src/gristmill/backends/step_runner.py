"""Run the stages of a step on tasks: the part of a worker that is the same on every backend."""

from __future__ import annotations

import inspect
import os
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from gristmill.errors import OutOfSpace
from gristmill.ledger.excluded import ExcludedFiles
from gristmill.ledger.tally import LostIdentity, StageTally, Tally
from gristmill.secrets import without_secrets
from gristmill.stages import core, function_definitions
from gristmill.stages.core import NodeInfo, ProcessingStage, WorkerMetadata, accounts_for_all
from gristmill.stages.protocols import Sink, Source
from gristmill.stages.text.io.dropped_columns import take_out_dropped
from gristmill.tasks import DocumentBatch, Task
from gristmill.tasks.document import in_parts, rejoined
from gristmill.tasks.names import block_of

_NOT_SHOWN = (os.path.dirname(__file__), core.__file__, function_definitions.__file__)
"""Frames of these files are left out of tracebacks: they do not help the author of a stage."""
_PART_BYTES = 4 << 20
"""How much of a batch goes through stages that treat documents one by one at a time."""
_LONGEST_LINE = 500
_LONGEST_DETAIL = 20_000


@dataclass(slots=True)
class StageCounts:
    """What one stage did since the last report."""

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
    """What a step must know so that documents are accounted for."""

    step: int
    is_last_step: bool
    output: Sink[Any, Any] | None
    """The stage that writes; what is dropped or bad is put beside its files."""

    def excluded(self) -> ExcludedFiles | None:
        return ExcludedFiles(self.output, self.step) if self.output is not None else None


class Interrupt(BaseException):
    """The run is to end now. Not an `Exception`, so that stages do not swallow it."""


class StageError(Exception):
    """A stage raised, or broke its contract. Carries words for people, not the exception: that may not travel.

    ``ends_run`` marks an error of the stage's code that no document causes: another attempt cannot help.
    """

    def __init__(self, stage: int, error: str, detail: str = "", ends_run: bool = False) -> None:
        super().__init__(error)
        self.stage = stage
        self.error = error
        self.detail = detail
        self.ends_run = ends_run


@dataclass(slots=True)
class _Call:
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


class StepRunner:
    """The stages of one step in one worker.

    Ids: a stage that returns one task passes the id of its input on; the n-th of several is ``<id>.<n>``. What a stage
    raises, `SystemExit` too, is a `StageError`; only `Interrupt` passes through.
    """

    def __init__(
        self,
        stages: Sequence[ProcessingStage[Any, Any]],
        note_stage: Callable[[int], None] | None = None,
        documents: Documents | None = None,
        note_progress: Callable[[int, int, int, float], None] | None = None,
    ) -> None:
        """``note_progress`` is called with a block, documents read and kept of it since the account was last taken, and
        the share of the block that is done; often, and inside a call of `run`."""
        self.stages = list(stages)
        self.documents = documents
        self._tally = Tally(documents.is_last_step) if documents is not None else None
        self._excluded: ExcludedFiles | None = None
        self.counts = [StageCounts() for _ in self.stages]
        self.current = 0
        """The stage that is running."""
        self.streams = False
        """The last output came from a generator, which may take its time for the next one."""
        self._note_stage = note_stage if len(self.stages) > 1 else None
        self._note_progress = note_progress
        self._running = ""
        """The label of the task that is running."""
        if note_progress is not None and documents is not None and self.stages and isinstance(self.stages[0], Source):
            self.stages[0].report_reading_to(self._read_so_far)
        self._processing = [_processing(stage) for stage in self.stages]
        self._is_batch = len(self.stages) == 1 and overrides(self.stages[0], "process_batch")
        self._set_up = 0

    def setup_on_node(self, node: NodeInfo, worker: WorkerMetadata) -> None:
        for i, stage in enumerate(self.stages):
            self._guarded(i, partial(call_with, stage.setup_on_node, node, worker))

    def setup(self, worker: WorkerMetadata) -> None:
        for i, stage in enumerate(self.stages):
            self._guarded(i, partial(call_with, stage.setup, worker))
            self._set_up = i + 1

    def teardown(self) -> list[StageError]:
        """Tear down the stages that were set up, all of them, whatever they raise."""
        errors = []
        for i in range(self._set_up):
            try:
                self._guarded(i, self.stages[i].teardown)
            except StageError as error:
                errors.append(error)
        self._set_up = 0
        for stage, called in zip(self.stages, self._processing, strict=True):
            if called is not stage:
                called.close()
        return errors

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

    def run(self, tasks: Sequence[Task[Any]]) -> Iterator[tuple[int, Task[Any]]]:
        """Outputs with the position of the input they come from, made as they are asked for, in the order of inputs."""
        excluded = self.documents.excluded() if self.documents is not None else None
        self._excluded = excluded
        try:
            for made in self._run(tasks):
                yield made
                self._excluded = excluded  # another unit may have been run in between
            if excluded is not None and self._tally is not None:
                excluded.write()
                for label, file in excluded.written:
                    self._tally.entry(block_of(label)).add_file(file)
        except (StageError, Interrupt, GeneratorExit):
            raise
        except BaseException as error:  # properties of tasks are the user's code too
            raise self._error(self.current, error) from None

    def _run(self, tasks: Sequence[Task[Any]]) -> Iterator[tuple[int, Task[Any]]]:
        if not self._is_batch:
            for position, task in enumerate(tasks):
                self._running = task.task_id
                for output in self._flow(0, task):
                    yield position, output
            return
        ids = [task.task_id for task in tasks]
        calls = [self._call(0, task) for task in tasks]
        for position, result in enumerate(self._batch(tasks)):
            for output in self._outputs(0, ids[position], result, calls[position]):
                yield position, output

    def _call(self, index: int, task: Task[Any]) -> _Call:
        """Note what a stage is given, before it is called: it may change the task in place."""
        stage = self.stages[index]
        columns = task.columns if not stage.builtin and isinstance(task, DocumentBatch) else ()
        if self._tally is None:
            return _Call(index, columns, None)
        before = Tally.before(task, is_compared=not accounts_for_all(stage))
        return _Call(index, columns, self._tally.stage(stage, index == len(self.stages) - 1, before, self._excluded))

    def _batch(self, tasks: Sequence[Task[Any]]) -> list[Any]:
        stage = self.stages[0]
        counts = self.counts[0]
        counts.tasks_in += len(tasks)
        counts.items_in += sum(t.num_items for t in tasks)
        start = time.perf_counter_ns()
        results = self._guarded(0, lambda: stage.process_batch(list(tasks)))
        counts.busy_ns += time.perf_counter_ns() - start
        if not isinstance(results, (list, tuple)) or len(results) != len(tasks):
            got = f"{len(results)} results" if isinstance(results, (list, tuple)) else f"a {type(results).__name__}"
            error = f"TypeError: process_batch of '{stage.name}' gave {got} for {len(tasks)} tasks"
            raise StageError(0, f"{error}; it must give one for each")
        return list(results)

    def _flow(self, index: int, task: Task[Any]) -> Iterator[Task[Any]]:
        """All that becomes of a task from a stage of the step on."""
        last = len(self.stages) - 1
        while True:
            if self.stages[index].row_wise and isinstance(task, DocumentBatch):
                index, task = self._by_rows(index, task)
                if index > last:
                    self.streams = False
                    yield task
                    return
                continue
            self._enter(index)
            counts = self.counts[index]
            counts.tasks_in += 1
            counts.items_in += task.num_items
            ident = task.task_id
            call = self._call(index, task)
            start = time.perf_counter_ns()
            try:
                result = self._processing[index].process(task)
            except Interrupt:
                raise
            except BaseException as error:  # a stage is the user's code: whatever it raises is its failure
                raise self._error(index, error) from None
            counts.busy_ns += time.perf_counter_ns() - start
            if not isinstance(result, Task):
                break
            call.result(result)
            call.end()
            counts.tasks_done += 1
            counts.tasks_out += 1
            counts.items_out += result.num_items
            result.task_id = ident
            if index == last:
                self.streams = False
                yield result
                return
            task = result
            index += 1
        for output in self._outputs(index, ident, result, call):
            if index == last:
                yield output
            else:
                yield from self._flow(index + 1, output)

    def _by_rows(self, first: int, task: DocumentBatch) -> tuple[int, DocumentBatch]:
        """Take a batch through all stages from ``first`` on that treat documents one by one, in parts.

        What they compute of documents is large, so it is kept for a part of the batch at a time. Gives the stage that
        comes next and the batch for it.
        """
        end = first
        while end < len(self.stages) and self.stages[end].row_wise:
            end += 1
        before, parts = [], []
        whole = task.data
        passed = 0
        """Rows of the batch that came this far."""
        try:
            for part in in_parts(task, _PART_BYTES):
                before.append(part.data)
                for index in range(first, end):
                    part = self._part(index, part)
                parts.append(part)
                passed += before[-1].num_rows
                if self._note_progress is not None and passed < whole.num_rows:
                    kept = sum(part.num_items for part in parts) if end >= len(self.stages) - 1 else 0
                    self._tell_progress(task.task_id, kept, passed / whole.num_rows)
        except StageError as error:
            self._passed(first, error.stage)
            self.counts[error.stage].tasks_in += 1
            raise
        self._passed(first, end)
        result = parts[0] if len(parts) == 1 else rejoined(whole, before, parts)
        result.task_id = task.task_id
        return end, result

    def _read_so_far(self, documents: int) -> None:
        """Tell how many documents the first stage has read of a batch that it is making."""
        if self._note_progress is not None and self._tally is not None:
            read, kept = self._tally.so_far()
            self._note_progress(block_of(self._running), read + documents, kept, 0.0)

    def _tell_progress(self, label: str, kept: int, share: float) -> None:
        """Report the result of a batch so far: ``kept`` of its documents came to the end of the step."""
        if self._note_progress is None or self._tally is None or self.documents is None:
            return
        read, kept_before = self._tally.so_far()
        is_last = self.documents.is_last_step
        is_whole = "." not in label  # else the batch is one of several of its block
        self._note_progress(block_of(label), read, kept_before + kept * is_last, share if is_whole and is_last else 0.0)

    def _passed(self, first: int, end: int) -> None:
        """A task has come through these stages."""
        for counts in self.counts[first:end]:
            counts.tasks_in += 1
            counts.tasks_done += 1
            counts.tasks_out += 1

    def _part(self, index: int, part: DocumentBatch) -> DocumentBatch:
        self._enter(index)
        counts, ident = self.counts[index], part.task_id
        counts.items_in += part.num_items
        call = self._call(index, part)
        start = time.perf_counter_ns()
        result = self._guarded(index, lambda: self.stages[index].process(part))
        counts.busy_ns += time.perf_counter_ns() - start
        if not isinstance(result, DocumentBatch):
            raise self._contract(index, f"is row_wise and returned a {type(result).__name__}")
        call.result(result)
        call.end()
        if call.tally is None:
            result.take_account()
        counts.items_out += result.num_items
        result.task_id = ident
        return result

    def _outputs(self, index: int, ident: str, result: Any, call: _Call) -> Iterator[Task[Any]]:
        """The tasks in what a stage returned for the task ``ident``, with their ids."""
        yield from self._each(index, ident, result, call)
        call.end()

    def _each(self, index: int, ident: str, result: Any, call: _Call) -> Iterator[Task[Any]]:
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
                raise self._error(index, error) from None
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

    def _guarded(self, index: int, call: Callable[[], Any]) -> Any:
        self._enter(index)
        try:
            return call()
        except Interrupt:
            raise
        except BaseException as error:  # the user's code again: the failure is theirs to read
            raise self._error(index, error) from None

    @staticmethod
    def _error(index: int, error: BaseException) -> StageError:
        return error if isinstance(error, StageError) else StageError(index, one_line(error), details(error))


_END = object()


def _processing(stage: ProcessingStage[Any, Any]) -> Any:
    """Return the object whose `process` is called: the stage, or one that waits for an asynchronous stage."""
    if not stage.runs_async():
        return stage
    from gristmill.stages.asynchronous import BlockingStage

    return BlockingStage(stage)


def one_line(error: BaseException) -> str:
    """An exception's type and the first line of its message."""
    if isinstance(error, OutOfSpace):
        return without_secrets(str(error))
    kind = type(error)
    name = kind.__qualname__
    if kind.__module__ not in ("builtins", "__main__"):
        name = f"{kind.__module__}.{name}"
    try:
        text = without_secrets(str(error).strip().partition("\n")[0])
    except Exception:  # the exception may be the user's own, and broken
        text = "its message cannot be shown"
    line = f"{name}: {text}" if text else name
    return line if len(line) <= _LONGEST_LINE else line[:_LONGEST_LINE] + " ..."


def details(error: BaseException) -> str:
    """An exception's traceback, with those it came from, without the frames of the engine.

    Empty for a full disk and the like: the place in the code does not help then.
    """
    if isinstance(error, OutOfSpace):
        return ""
    whole = traceback.TracebackException.from_exception(error)
    todo = [whole]
    while todo:
        part = todo.pop()
        part.stack[:] = [frame for frame in part.stack if not frame.filename.startswith(_NOT_SHOWN)]
        todo += [x for x in (part.__cause__, part.__context__) if x is not None]
    text = without_secrets("".join(whole.format()))
    half = _LONGEST_DETAIL // 2
    return text if len(text) <= _LONGEST_DETAIL else f"{text[:half]}\n...\n{text[-half:]}"


def overrides(stage: ProcessingStage[Any, Any], method: str) -> bool:
    """Whether a stage has a method of its own in place of the default."""
    return getattr(type(stage), method, None) is not getattr(ProcessingStage, method)


def call_with(method: Callable[..., Any], *arguments: Any) -> Any:
    """Call a hook with as many of the arguments as its author wanted to have."""
    try:
        parameters = inspect.signature(method).parameters.values()
    except (TypeError, ValueError):
        return method(*arguments)
    if any(p.kind is p.VAR_POSITIONAL for p in parameters):
        return method(*arguments)
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    return method(*arguments[: len(positional)])
