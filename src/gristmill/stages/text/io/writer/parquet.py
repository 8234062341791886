"""Parquet files, and their parts written again so that all of them have one schema."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from gristmill.stages.core import ProcessingStage
from gristmill.stages.registry import builtin
from gristmill.stages.text.io.writer.base import FileWriter
from gristmill.tasks import DocumentBatch, FileGroupTask, Written
from gristmill.tasks.names import part_name

if TYPE_CHECKING:
    import pyarrow as pa

    from gristmill.stages.text.io.writer.parquet_columns import Target

COMPRESSIONS = ("snappy", "zstd", "gzip", "brotli", "lz4")


class _DoesNotFit(ValueError):
    """A column cannot be cast."""


@builtin
class ParquetWriter(FileWriter):
    """One Parquet file for each batch, in the folder ``path``, named by the task.

    All files have one schema. Columns keep their types; lists and objects of JSON are lists and structs. A field that
    is whole numbers in one block and has fractions in another is ``double`` in all files. A field that holds strings
    and numbers is text: strings as they are, numbers as in JSON. Lists or objects that have no type in common are JSON
    text. ``schema`` sets types: ``{"score": "double", "n": "int64", "title": "large_string"}``, as Arrow calls them.
    Such a column is in every file, as nulls if need be; a value that does not fit its type is an error. Documents that
    are dropped are cast as far as they can be.

    With ``fields`` only these are written, in this order; one that is not there is null.
    ``compression`` is "snappy", "zstd", "gzip", "brotli", "lz4" or None; ``write_kwargs`` may hold
    "compression_level" and "row_group_size" (rows; with images about 32 MB if it is not given). ``excluded`` and
    ``scores`` are as for `JsonlWriter`.
    """

    loads: ClassVar[tuple[str, ...]] = ("pyarrow.parquet",)
    extension = ".parquet"

    def __init__(
        self,
        path: str | os.PathLike[str],
        fields: Sequence[str] | None = None,
        compression: str | None = "snappy",
        excluded: bool | float = True,
        write_kwargs: dict[str, Any] | None = None,
        schema: dict[str, str] | None = None,
        scores: bool = True,
    ) -> None:
        self.write_options = self._set_arguments(
            path, fields, excluded, scores, write_kwargs, ("compression_level", "row_group_size")
        )
        if compression is not None and compression not in COMPRESSIONS:
            names = ", ".join(map(repr, COMPRESSIONS))
            raise ValueError(f"compression must be one of {names} or None, not {compression!r}.")
        self.compression = compression
        self.schema = dict(schema or {})
        self._types()  # a wrong name is an error here
        if self.fields is not None and (others := [name for name in self.schema if name not in self.fields]):
            raise ValueError(f"schema names {', '.join(map(repr, others))}, which fields does not: nothing is written.")

    def preload(self) -> None:
        import pyarrow.parquet  # noqa: F401  # slow to import, and shared by all workers

    def process(self, task: DocumentBatch) -> FileGroupTask:
        try:
            return super().process(task)
        except _DoesNotFit as error:
            raise ValueError(f"{part_name(task.task_id, self.extension)}: {error}") from None

    def _types(self) -> dict[str, pa.DataType]:
        if not self.schema:
            return {}
        import pyarrow as pa

        types = {}
        for name, alias in self.schema.items():
            try:
                types[name] = pa.type_for_alias(alias)
            except (ValueError, TypeError):
                raise ValueError(
                    f'schema: {alias!r} for {name!r} is no type of Arrow: "int64", "double", "bool", "large_string", '
                    '"timestamp[us]" are some.'
                ) from None
        return types

    def _cast(self, table: pa.Table, strict: bool) -> pa.Table:
        """The table with the types of the schema; unless ``strict``, columns that do not fit keep theirs."""
        import pyarrow as pa

        from gristmill.stages.text.io.writer.parquet_columns import cast

        for name, kind in self._types().items():
            where = table.schema.get_field_index(name)
            if where < 0:
                table = table.append_column(name, pa.nulls(table.num_rows, kind))
                continue
            field, column = table.schema.field(where), table.column(where)
            try:
                column = cast(field, column, kind)
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
                if not strict:
                    continue
                raise _DoesNotFit(f"column {name!r} is {field.type} and cannot be written as {kind}: {error}") from None
            table = table.set_column(where, field.with_type(kind).remove_metadata(), column)
        return table

    def _rendered(self, table: pa.Table, extra: Sequence[str] = ()) -> Any:
        import pyarrow as pa

        from gristmill.stages.text.io.writer.parquet_columns import absent, provisional

        fields = self._written(extra)
        table = self._cast(table, strict=not extra)
        for name in fields or ():
            if name not in table.column_names:
                table = table.append_column(absent(name), pa.nulls(table.num_rows, pa.large_string()))
        table = table.select(self._visible(table) if fields is None else fields)
        columns = [provisional(field, column) for field, column in zip(table.schema, table.columns, strict=True)]
        schema = pa.schema([field for field, _ in columns], metadata=table.schema.metadata)
        return self.content(pa.Table.from_arrays([column for _, column in columns], schema=schema))

    def content(self, table: pa.Table) -> Any:
        """The content of a file that holds a table as it is."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        from gristmill.stages.text.io.writer.parquet_columns import row_groups_of

        sink = pa.BufferOutputStream()
        options = {**row_groups_of(table), **self.write_options}
        pq.write_table(table, sink, compression=self.compression or "none", **options)
        return memoryview(sink.getvalue())


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
