"""What a stage that needs all documents is given to decide with: see `gristmill.stages.barrier.PhaseContext`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from gristmill.backends.base import Executor, RunRecord
from gristmill.errors import PipelineFailed
from gristmill.ledger.run import RunLedger
from gristmill.pipeline.phases.split import Split
from gristmill.pipeline.planner import PipelineInput, Stage, plan_of
from gristmill.pipeline.result import RunResult
from gristmill.stages.core import ProcessingStage
from gristmill.stages.spool import DOCUMENTS, SpoolReader, read_arrow
from gristmill.stages.text.io.json_columns import plain_strings
from gristmill.stages.text.io.reader.base import FileReader
from gristmill.stages.text.io.reader.jsonl import JsonlReader
from gristmill.tasks import DocumentBatch, FileBlock, FileGroupTask, Task
from gristmill.tasks.names import block_of_file

HERE_BYTES = 64 << 20
"""Work on so little is done in the driver: workers take longer to start."""


class PhaseContext:
    """Runs steps of a split on an executor. What was run is added to ``done``."""

    def __init__(
        self,
        executor: Executor,
        done: list[RunRecord],
        split: Split,
        head: Stage,
        blocks: Sequence[Task[Any]],
        memory: int,
        workers: int,
    ) -> None:
        self.folder = split.folder
        self.records = split.records
        self.memory = memory
        self.workers = workers
        self.notes: list[str] = []
        self._executor = executor
        self._done = done
        self._cut = split
        self._head = head
        self._blocks = blocks

    def run(self, name: str, stage: Stage, tasks: Sequence[Task[Any]], size: int) -> list[Any]:
        if not tasks:
            return []
        if size <= min(HERE_BYTES, self.memory // 4) or (len(tasks) == 1 and size <= self.memory // 4):
            stage.preload()
            stage.setup()
            return [stage.process(task) for task in tasks]
        plan = plan_of(name, [stage], PipelineInput(tasks[0]))
        return self._execute(plan, list(tasks), keep=True).outputs

    def few(self, places: Sequence[tuple[str, int, str]], field: str) -> list[str] | None:
        if not self._cut.read_again:
            return [self._stored(part, row, field) for part, row, _ in places] if self.folder.is_local else None
        blocks = [piece for block in self._blocks if isinstance(block, FileBlock) for piece in block.data]
        planned = {piece.path: piece for piece in blocks}
        ranges = []
        for _, _, ident in places:
            path, _, position = ident.rpartition("#")
            ranges.append(replace(planned[path], start=int(position), stop=int(position) + 1, limit=-1))
        if not isinstance(self._head, JsonlReader) or any(piece.stop < 0 for piece in blocks):
            return None  # a file that must be read from its beginning
        batch = self._head.reading_for([_Wants(field)]).process(FileBlock(ranges, task_id="0"))
        texts: list[str] = plain_strings(batch.data, field).to_pylist()  # type: ignore[union-attr]  # it is no stream
        return texts if len(texts) == len(places) else None

    def _stored(self, part: str, row: int, field: str) -> str:
        table = read_arrow(self.folder, part + DOCUMENTS, [field])
        return plain_strings(table.slice(row, 1), field)[0].as_py() or ""

    def again(self, name: str, stage: Stage, parts: Sequence[str]) -> None:
        wanted = set(parts)
        if isinstance(self._head, FileReader) and self._cut.read_again:
            numbers = {block_of_file(part) for part in parts}
            head = self._head.reading_for([stage])
            without = self._cut.without()
            front = [head, *without, *([_NotEmpty()] if without else [])]  # a part of which nothing is left is unknown
            blocks = [block for block in self._blocks if int(block.task_id) in numbers]
        else:
            reader = SpoolReader(self._cut.folder, self._cut.parts, self._cut.version)
            front, blocks = [reader], [block for block in reader.source() if block.data in wanted]
        if not blocks:
            return
        ledger = RunLedger()
        ledger.blocks_total = len(blocks)
        plan = replace(plan_of(name, [*front, stage], PipelineInput(blocks[0])), ledger=ledger)
        self._execute(plan, blocks, keep=False)

    def _execute(self, plan: Any, tasks: list[Task[Any]], keep: bool) -> RunResult:
        record = self._executor.execute(plan, tasks, keep)
        result = RunResult(record)
        result.check()
        if record.failures_total:
            raise PipelineFailed(result.failure_report(), result)
        record.steps.clear()  # it is no stage of the user's pipeline
        record.ledger = None
        self._done.append(record)
        return result


class _NotEmpty(ProcessingStage[DocumentBatch, DocumentBatch], builtin=True):
    """Lets batches through in which there is something."""

    name = "not empty"

    def inputs(self) -> tuple[list[str], list[str]]:
        return ["data"], []

    def outputs(self) -> tuple[list[str], list[str]]:
        return ["data"], []

    def process(self, task: DocumentBatch) -> DocumentBatch | None:
        return task if task.num_items else None


class _Wants(ProcessingStage[DocumentBatch, DocumentBatch], builtin=True):
    """Stands for whoever looks at one column, when a reader is told what to take."""

    def __init__(self, column: str) -> None:
        self.column = column

    def inputs(self) -> tuple[list[str], list[str]]:
        return ["data"], [self.column]

    def output_type(self) -> type[FileGroupTask]:
        return FileGroupTask

    def process(self, task: DocumentBatch) -> DocumentBatch:
        return task
