"""The end of a run that writes Parquet: all parts get one schema.

The types of a part are those of its block. When all parts are written, their schemas are compared, and the parts that
differ are written again, on the executor if they are many. The log then gets the new stamps. If a run is stopped
meanwhile, the next one does the blocks again whose files do not match the log.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from gristmill.backends.base import Executor
from gristmill.errors import PipelineFailed
from gristmill.ledger.commits import CommitLog
from gristmill.ledger.excluded import EXCLUDED
from gristmill.logs import logger
from gristmill.pipeline.planner import PipelineInput, plan_of
from gristmill.pipeline.result import RunResult
from gristmill.stages.text.io.writer.parquet import ParquetWriter
from gristmill.tasks import FileGroupTask, Task, Written

if TYPE_CHECKING:
    import pyarrow as pa

    from gristmill.stages.text.io.writer.parquet_columns import Target

HERE_BYTES = 64 << 20
"""Up to this size parts are written again in the driver: workers take longer to start."""
FOOTERS_AT_ONCE = 16
FOOTERS_HELD = 1000

Owners = Mapping[str, tuple[CommitLog, str]]
"""Files by their names in the output folder, each with its log, and its name there."""


def give_one_schema(
    writer: Any, executor: Executor, log: CommitLog, has_new: bool, of_phases: Owners | None = None
) -> None:
    """Give all parts of an output one schema, and those of its excluded documents another.

    ``has_new``: the run wrote parts, so columns without a common type are reported. ``of_phases`` are files of
    documents that were dropped before the last phase.
    """
    beside = writer.excluded_writer
    if not isinstance(beside, ParquetWriter):
        return
    end = beside.extension
    names = sorted(name for name in log.files() if name.endswith(end))
    others = {name: owner for name, owner in (of_phases or {}).items() if name.endswith(end)}
    excluded = [*(name for name in names if name.startswith(f"{EXCLUDED}/")), *sorted(others)]
    PartsOfOutput(beside, executor, log, excluded, others).agree()
    if not isinstance(writer, ParquetWriter):
        return
    wanted, rewritten = PartsOfOutput(writer, executor, log, [name for name in names if "/" not in name]).agree()
    for target in wanted if has_new or rewritten else ():
        if target.found and target.name not in writer.schema:
            how = "JSON text" if target.is_json else "text"
            logger.warning(
                f"column {target.name!r} holds {' and '.join(target.found)}: it is written as {how} in all parts. "
                f"ParquetWriter(schema={{{target.name!r}: ...}}) sets another type."
            )


class PartsOfOutput:
    """Files that get one schema."""

    def __init__(
        self,
        writer: ParquetWriter,
        executor: Executor,
        log: CommitLog,
        names: Sequence[str],
        others: Owners | None = None,
    ) -> None:
        self.writer = writer
        self.executor = executor
        self.log = log
        self.names = names
        self.others = others or {}
        """Files of other logs."""

    def agree(self) -> tuple[list[Target], int]:
        """Write files that differ again. Return the columns of all files, and the number of rewritten files."""
        from gristmill.stages.text.io.writer.parquet import MISFIT, WRITTEN
        from gristmill.stages.text.io.writer.parquet_columns import DoesNotFit, is_conform, targets

        as_text: frozenset[str] = frozenset()
        count = 0
        while True:
            schemas, which = self._schemas()
            try:
                wanted = targets(schemas, as_text)
            except DoesNotFit as error:
                logger.warning(f"column {str(error)!r} has types in the parts that have nothing in common: they stay.")
                return [], count
            fits = [is_conform(schema, wanted) for schema in schemas]
            results = self._rewritten([name for name, k in zip(self.names, which, strict=True) if not fits[k]], wanted)
            written = {
                task._metadata[WRITTEN].name: task._metadata[WRITTEN] for task in results if WRITTEN in task._metadata
            }
            if written:
                self._restamp(written)
            count += len(written)
            misfits = frozenset(task._metadata[MISFIT] for task in results if MISFIT in task._metadata)
            if not misfits:
                return wanted, count
            as_text |= misfits

    def _restamp(self, written: Mapping[str, Written]) -> None:
        """Write the new stamps of files to the logs."""
        self.writer.folder.sync(written)
        by_log: dict[int, tuple[CommitLog, dict[str, Written]]] = {}
        for place, file in written.items():
            log, name = self.others.get(place, (self.log, place))
            by_log.setdefault(id(log), (log, {}))[1][name] = replace(file, name=name)
        for log, files in by_log.values():
            log.rewrite(written=files)

    def _schemas(self) -> tuple[list[pa.Schema], list[int]]:
        """Return the different schemas, in the order of the files, and the schema number of each file."""
        from gristmill.stages.text.io.writer.parquet import schema_of_part
        from gristmill.stages.text.io.writer.parquet_columns import signature

        numbers: dict[Any, int] = {}
        schemas: list[pa.Schema] = []
        which: list[int] = []
        with ThreadPoolExecutor(FOOTERS_AT_ONCE) as pool:
            for start in range(0, len(self.names), FOOTERS_HELD):
                some = self.names[start : start + FOOTERS_HELD]
                for schema in pool.map(lambda name: schema_of_part(self.writer, name), some):
                    number = numbers.setdefault(signature(schema), len(schemas))
                    if number == len(schemas):
                        schemas.append(schema)
                    which.append(number)
        return schemas, which

    def _rewritten(self, names: Sequence[str], wanted: Sequence[Any]) -> list[Task[Any]]:
        from gristmill.stages.text.io.writer.parquet import ConformParts

        if not names:
            return []
        stage = ConformParts(self.writer, wanted)
        tasks: list[Task[Any]] = [FileGroupTask(data=[name]) for name in names]
        sizes = {place: self.writer.folder.sizes(place) for place in {name.rpartition("/")[0] for name in names}}
        if sum(sizes[name.rpartition("/")[0]].get(name.rpartition("/")[2], 0) for name in names) <= HERE_BYTES:
            stage.preload()
            return [stage.process(task) for task in tasks]  # type: ignore[arg-type]  # they are groups of files
        record = self.executor.execute(plan_of(stage.name, [stage], PipelineInput(tasks[0])), tasks, True)
        result = RunResult(record)
        result.check()
        if record.failures_total:
            raise PipelineFailed(result.failure_report(), result)
        return list(result.outputs)
