"""Parts of a Parquet output that are written again, so that all of them have one schema."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from gristmill.stages.core import ProcessingStage
from gristmill.stages.text.io.writer.parquet import ParquetWriter
from gristmill.tasks import FileGroupTask, Written

if TYPE_CHECKING:
    import pyarrow as pa

    from gristmill.stages.text.io.writer.parquet_columns import Target

WRITTEN = "written"
MISFIT = "misfit"
"""Keys of a result's metadata: the file as it is now, or the column that does not fit."""


def schema_of_part(writer: ParquetWriter, name: str) -> pa.Schema:
    """The schema of a part, by its footer."""
    import pyarrow.parquet as pq

    folder = writer.folder
    if folder.is_local:
        return pq.read_schema(folder.path(name))
    with folder.open(name) as file:
        return pq.read_schema(file)


class ConformParts(ProcessingStage[FileGroupTask, FileGroupTask], builtin=True):
    """Writes each part again with the columns of the output. A part that would lose something stays as it is."""

    name = "one schema for all parts"

    def __init__(self, writer: ParquetWriter, targets: Sequence[Target]) -> None:
        self.writer = writer
        self.targets = list(targets)

    def preload(self) -> None:
        self.writer.preload()

    def process(self, task: FileGroupTask) -> FileGroupTask:
        import pyarrow as pa
        import pyarrow.parquet as pq

        from gristmill.stages.text.io.writer.parquet_columns import DoesNotFit, conform

        (name,) = task.data
        done = FileGroupTask(data=[name])
        table = pq.ParquetFile(pa.BufferReader(self.writer.folder.read(name))).read()
        try:
            table = conform(table, self.targets)
        except DoesNotFit as error:
            done._metadata[MISFIT] = str(error)
            return done
        content: Any = self.writer.content(table)
        checksum = self.writer.folder.write(name, content)
        done._metadata[WRITTEN] = Written(name, table.num_rows, len(content), checksum)
        return done
