"""Run the stages of a step on tasks: the part of a worker that is the same on every backend."""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from gristmill.backends.accounting import Documents, StageAccounting
from gristmill.backends.stage_errors import Interrupt, StageError, stage_error
from gristmill.stages.core import NodeInfo, ProcessingStage, WorkerMetadata
from gristmill.stages.protocols import Source
from gristmill.tasks import DocumentBatch, Task
from gristmill.tasks.document import in_parts, rejoined
from gristmill.tasks.names import block_of

_PART_BYTES = 4 << 20
"""How much of a batch goes through stages that treat documents one by one at a time."""


class StepRunner(StageAccounting):
    """The stages of one step in one worker.

    What a stage raises, `SystemExit` too, is a `StageError`; only `Interrupt` passes through. An asynchronous stage
    processes one task at a time.
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
        super().__init__(stages, documents, note_stage)
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

    def run(self, tasks: Sequence[Task[Any]]) -> Iterator[tuple[int, Task[Any]]]:
        """Outputs with the position of the input they come from, made as they are asked for, in the order of inputs."""
        excluded = self.documents.excluded() if self.documents is not None else None
        self._excluded = excluded
        try:
            for made in self._run(tasks):
                yield made
                self._excluded = excluded  # another unit may have been run in between
            if excluded is not None:
                self._write_excluded(excluded)
        except (StageError, Interrupt, GeneratorExit):
            raise
        except BaseException as error:  # properties of tasks are the user's code too
            raise stage_error(self.current, error) from None

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
                raise stage_error(index, error) from None
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
        """Report how many documents the first stage has read of a batch that it is making."""
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
        """Count a task that these stages have passed on."""
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
        result = self._guarded(index, lambda: self._processing[index].process(part))
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

    def _guarded(self, index: int, call: Callable[[], Any]) -> Any:
        self._enter(index)
        try:
            return call()
        except Interrupt:
            raise
        except BaseException as error:  # the user's code again: the failure is theirs to read
            raise stage_error(index, error) from None


def _processing(stage: ProcessingStage[Any, Any]) -> Any:
    """Return the object whose `process` is called: the stage, or one that waits for an asynchronous stage."""
    if not stage.runs_async():
        return stage
    from gristmill.stages.asynchronous import BlockingStage

    return BlockingStage(stage)


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
