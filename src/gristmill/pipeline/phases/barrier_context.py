"""The context in which a barrier decides, on an executor: see `gristmill.stages.barrier.BarrierContext`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from gristmill.backends.base import Executor, RunRecord
from gristmill.errors import PipelineFailed
from gristmill.ledger.run import RunLedger
from gristmill.pipeline.phases.split import Phase, Split
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
"""Up to this size work is done in the driver: workers take longer to start."""


class PhaseContext:
    """Runs steps of a decision on an executor, and adds their records to ``done``."""

    def __init__(
        self,
        executor: Executor,
        done: list[RunRecord],
        split: Split,
        phase: Phase,
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
        self._split = split
        self.phase = phase

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
        if not self._split.read_again:
            return [self._stored(part, row, field) for part, row, _ in places] if self.folder.is_local else None
        blocks = [piece for block in self.phase.blocks if isinstance(block, FileBlock) for piece in block.data]
        planned = {piece.path: piece for piece in blocks}
        ranges = []
        for _, _, ident in places:
            path, _, position = ident.rpartition("#")
            ranges.append(replace(planned[path], start=int(position), stop=int(position) + 1, limit=-1))
        if not isinstance(self.phase.reader, JsonlReader) or any(piece.stop < 0 for piece in blocks):
            return None  # a file that must be read from its beginning
        batch = self.phase.reader.reading_for([_Wants(field)]).process(FileBlock(ranges, task_id="0"))
        texts: list[str] = plain_strings(batch.data, field).to_pylist()  # type: ignore[union-attr]  # it is no stream
        return texts if len(texts) == len(places) else None

    def _stored(self, part: str, row: int, field: str) -> str:
        table = read_arrow(self.folder, part + DOCUMENTS, [field])
        return plain_strings(table.slice(row, 1), field)[0].as_py() or ""

    def again(self, name: str, stage: Stage, parts: Sequence[str]) -> None:
        wanted = set(parts)
        if isinstance(self.phase.reader, FileReader) and self._split.read_again:
            numbers = {block_of_file(part) for part in parts}
            head = self.phase.reader.reading_for([stage])
            without = self._split.without()
            front = [head, *without, *([_NotEmpty()] if without else [])]  # an empty part is unknown
            blocks = [block for block in self.phase.blocks if int(block.task_id) in numbers]
        else:
            reader = SpoolReader(self._split.folder, self._split.parts, self._split.version)
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
        record.steps.clear()  # they are no steps of the user's pipeline
        record.ledger = None
        self._done.append(record)
        return result


class _NotEmpty(ProcessingStage[DocumentBatch, DocumentBatch], builtin=True):
    """Drops empty batches."""

    name = "not empty"

    def inputs(self) -> tuple[list[str], list[str]]:
        return ["data"], []

    def outputs(self) -> tuple[list[str], list[str]]:
        return ["data"], []

    def process(self, task: DocumentBatch) -> DocumentBatch | None:
        return task if task.num_items else None


class _Wants(ProcessingStage[DocumentBatch, DocumentBatch], builtin=True):
    """Stands for a stage that needs one column, so that a reader reads only that."""

    def __init__(self, column: str) -> None:
        self.column = column

    def inputs(self) -> tuple[list[str], list[str]]:
        return ["data"], [self.column]

    def output_type(self) -> type[FileGroupTask]:
        return FileGroupTask

    def process(self, task: DocumentBatch) -> DocumentBatch:
        return task
