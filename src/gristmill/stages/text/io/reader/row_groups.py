"""Row groups of Parquet files that are collected for batches of documents."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from gristmill.stages.text.io.compression import Guarded
from gristmill.stages.text.io.json_columns import ABSENT
from gristmill.stages.text.io.reader.batches import SHOWN_BYTES, BatchBuilder, ids
from gristmill.stages.text.io.reader.choice import Choice
from gristmill.stages.text.io.reader.columns import Wanted
from gristmill.stages.text.io.reader.files import opened
from gristmill.tasks import BadRecord, DocumentBatch, FileRange, FileStamp
from gristmill.tasks.document import HIDDEN, ID

LARGE = 2
"""A row group of more than so many blocks is read in several batches."""


class Unreadable(Exception):
    """The data of a file makes no sense; the storage did deliver it."""


@contextmanager
def _telling_apart(file: Guarded) -> Iterator[None]:
    """Errors as `Unreadable`, unless they are the storage's own."""
    try:
        yield
    except (pa.ArrowException, OSError, ValueError, KeyError, EOFError) as error:
        if file.error is not None:
            raise file.error from None
        raise Unreadable(str(error).partition("\n")[0]) from None


@contextmanager
def opened_parquet(
    path: str, options: Mapping[str, Any], planned: FileStamp | None = None
) -> Iterator[tuple[pq.ParquetFile, Guarded]]:
    """A file with its footer read, and the file below it."""
    with opened(path, options, planned=planned) as plain:
        guarded = Guarded(plain)
        with _telling_apart(guarded):
            file = pq.ParquetFile(guarded)
        yield file, guarded


@dataclass(frozen=True)
class Footer:
    """The metadata of a Parquet file."""

    schema: pa.Schema
    rows: list[int]
    """Of each row group."""
    sizes: list[int]
    """The bytes in memory of each row group."""


def footer_of(path: str, options: Mapping[str, Any], planned: FileStamp | None = None) -> Footer | None:
    """Read the footer of a file; None if it makes no sense."""
    try:
        with opened_parquet(path, options, planned) as (file, _):
            groups = [file.metadata.row_group(i) for i in range(file.num_row_groups)]
            sizes = [group.total_byte_size for group in groups]
            return Footer(file.schema_arrow, [group.num_rows for group in groups], sizes)
    except Unreadable:
        return None


def paths_in(kind: pa.DataType, name: str) -> Iterator[str]:
    """The paths of all members of a struct of this name."""
    for i in range(kind.num_fields if pa.types.is_struct(kind) else 0):
        path = f"{name}.{kind.field(i).name}"
        yield path
        yield from paths_in(kind.field(i).type, path)


def is_text(kind: pa.DataType) -> bool:
    """Whether a column of this type holds texts."""
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    return str(kind) in ("string", "large_string", "string_view")


def duplicated(schema: pa.Schema) -> list[str]:
    """The names that several columns of a file have."""
    return [name for name, count in Counter(schema.names).items() if count > 1]


@dataclass
class _Piece:
    path: str
    numbers: Any
    """The row in the file that each row of the table is."""
    table: pa.Table
    size: int
    schema: pa.Schema
    """Of all columns of the file: where a batch ends does not depend on the columns that are read."""


class RowGroups(BatchBuilder):
    """Collects rows, of one file or several, until there are enough for a batch."""

    def __init__(
        self,
        wanted: Wanted,
        options: Mapping[str, Any],
        block_bytes: int,
        choice: Callable[[FileRange], Choice] = lambda part: Choice(),
        note_read: Callable[[int], None] | None = None,
    ) -> None:
        """``note_read`` is called with the number of rows so far, for each piece of the first batch."""
        super().__init__(note_read)
        self.options = options
        self.text_field = wanted.text_field
        self.columns, self.required = wanted.to_read()
        self.block_bytes = block_bytes
        self.limit = block_bytes * LARGE
        self.choice_of = choice

    def batches(self, ranges: Sequence[FileRange]) -> Iterator[DocumentBatch]:
        """One batch at least."""
        tables: list[pa.Table] = []
        schema = pa.schema([])
        size = 0
        given = False
        for part in ranges:
            self.account.read[part.path] += 0
            for piece in self._pieces(part):
                table = self._documents(piece)
                if tables and (size + piece.size > self.limit or not _fit(schema, piece.schema)):
                    yield self._batch(tables)
                    given = True
                    tables, size = [], 0
                schema = schema if tables else piece.schema
                tables.append(table)
                size += piece.size
                if not given:
                    self.report_progress()
        if tables or not given or self.account.read:
            yield self._batch(tables)

    def _batch(self, tables: list[pa.Table]) -> DocumentBatch:
        if not tables:
            names = list(dict.fromkeys([*([self.text_field] if self.text_field else []), *self.required, ID]))
            tables = [pa.table({name: pa.array([], type=pa.large_string()) for name in names})]
        table = tables[0] if len(tables) == 1 else pa.concat_tables(tables, promote_options="permissive")
        for name in self.required:
            where = table.schema.get_field_index(name)
            if pa.types.is_null(table.schema.field(where).type):  # stages expect a column of texts
                field = pa.field(name, pa.large_string(), metadata=ABSENT)
                table = table.set_column(where, field, pa.nulls(table.num_rows, pa.large_string()))
        return self.batch_of(table.combine_chunks())

    def _pieces(self, part: FileRange) -> Iterator[_Piece]:
        choice = self.choice_of(part)
        try:
            with opened_parquet(part.location, self.options, part.stamp) as (file, guarded):
                if twice := [name for name in duplicated(file.schema_arrow) if self._reads(name)]:
                    raise Unreadable(f"several columns have the name {twice[0]!r}")
                stop = file.num_row_groups if part.stop < 0 else part.stop
                row = sum(file.metadata.row_group(i).num_rows for i in range(part.start))
                for group in range(part.start, stop):
                    if choice.is_full:
                        break
                    about = file.metadata.row_group(group)
                    packed = sum(about.column(i).total_compressed_size for i in range(about.num_columns))
                    try:
                        with _telling_apart(guarded):
                            for piece in self._group(file, part.path, group, row, choice):
                                self.account.bytes_read += packed * piece.size // max(about.total_byte_size, 1)
                                yield piece
                    except Unreadable as error:
                        reason = f"row group {group} with {about.num_rows} rows cannot be read: {error}"
                        self.add_bad(part.path, row, reason)
                    row += about.num_rows
        except Unreadable as error:
            self.add_bad(part.path, 0, f"not a readable Parquet file: {error}")

    def _reads(self, name: str) -> bool:
        return self.columns is None or name in self.columns

    def _group(self, file: pq.ParquetFile, path: str, group: int, row: int, choice: Choice) -> Iterator[_Piece]:
        about = file.metadata.row_group(group)
        there = file.schema_arrow.names
        names = None if self.columns is None else [name for name in self.columns if name in there]
        size = about.total_byte_size
        if size <= self.limit:
            numbers, mask = self._chosen(np.arange(row, row + about.num_rows), choice)
            if len(numbers) or mask is None:
                table = file.read_row_group(group, columns=names, use_threads=False)
                table = table if mask is None else table.filter(mask)
                yield _Piece(path, numbers, table, size, file.schema_arrow)
            return
        rows = max(1, about.num_rows * self.block_bytes // size)
        for batch in file.iter_batches(rows, [group], columns=names, use_threads=False):
            part = size * batch.num_rows // max(about.num_rows, 1)
            numbers, mask = self._chosen(np.arange(row, row + batch.num_rows), choice)
            table = pa.Table.from_batches([batch])
            yield _Piece(path, numbers, table if mask is None else table.filter(mask), part, file.schema_arrow)
            row += batch.num_rows
            if choice.is_full:
                return

    def _chosen(self, numbers: Any, choice: Choice) -> tuple[Any, Any]:
        """Those of the rows that are taken, and a mask of them; None if they all are."""
        if choice.takes_all:
            return numbers, None
        mask = self.take(choice, numbers)
        return numbers[mask], mask

    def _documents(self, piece: _Piece) -> pa.Table:
        """The rows of a piece that are documents; others are bad records."""
        table = piece.table.drop_columns([name for name in HIDDEN if name in piece.table.column_names])
        rows = table.num_rows
        text = self.text_field
        if text is not None and rows:
            problem = _no_text(table, text)
            if problem:
                self.add_bad(piece.path, int(piece.numbers[0]), f"{problem} in {rows} rows")
                table = _without_rows(table, text)
                rows = 0
        numbers = piece.numbers[:rows]
        self.account.read[piece.path] += rows
        if text is not None and text in table.column_names:
            column = table.column(text).cast(pa.large_string())
            table = table.set_column(table.schema.get_field_index(text), text, column)
            keep = self._readable(piece, column) if rows else np.ones(0, dtype=bool)
            if not keep.all():
                table, numbers = table.filter(keep), numbers[keep]
        for name in self.required:
            if name not in table.column_names:
                table = table.append_column(name, pa.nulls(table.num_rows))
        return table.append_column(ID, ids(piece.path, numbers))

    def _readable(self, piece: _Piece, column: pa.ChunkedArray) -> Any:
        """A mask of the rows whose text is one."""
        keep = pc.is_valid(column).to_numpy()
        for row in np.flatnonzero(~keep).tolist():
            self._bad_row(piece, row, f"the field {self.text_field!r} is null")
        try:
            column.validate(full=True)
        except pa.ArrowInvalid:
            keep = keep.copy()
            for row, value in enumerate(column.cast(pa.large_binary()).to_pylist()):
                try:
                    (value or b"").decode("utf-8")
                except UnicodeDecodeError as error:
                    keep[row] = False
                    reason = f"not valid UTF-8: byte 0x{value[error.start]:02x} at {error.start} of the text"
                    self._bad_row(piece, row, reason, value)
        return keep

    def _bad_row(self, piece: _Piece, row: int, reason: str, raw: bytes = b"") -> None:
        self.account.bad.append(BadRecord(piece.path, int(piece.numbers[row]), reason, raw[:SHOWN_BYTES]))


def _no_text(table: pa.Table, name: str) -> str | None:
    """Return what is wrong with the column of the text as a whole."""
    if name not in table.column_names:
        return f"no field {name!r}"
    kind = table.schema.field(name).type
    return None if is_text(kind) else f"the field {name!r} is of type {kind}, not a string,"


def _without_rows(table: pa.Table, text: str) -> pa.Table:
    """No rows, and a column for texts all the same: stages count on it."""
    empty = pa.array([], type=pa.large_string())
    where = table.schema.get_field_index(text)
    table = table.slice(0, 0)
    return table.append_column(text, empty) if where < 0 else table.set_column(where, text, empty)


def _fit(one: pa.Schema, other: pa.Schema) -> bool:
    """Whether tables of both can be put together without a change of values."""
    if one.equals(other):
        return True
    mine = {field.name: field.type for field in one}
    return all(mine.get(field.name, field.type) == field.type for field in other)
