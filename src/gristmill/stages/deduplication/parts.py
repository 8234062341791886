"""The keys of all documents, in files by batch, and the numbers of documents."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from gristmill.stages.barrier import KEYS
from gristmill.stages.spool import read_arrow
from gristmill.storage import Folder
from gristmill.tasks.arrow import int_array, numbers_of

if TYPE_CHECKING:
    from gristmill.tasks import DocumentBatch

IDENT, SIZE, SCORE = "id", "size", "score"
"""Columns of all keys: the id, the length of the text, and the score of a policy."""
OWN_ID = "document_id"
"""The value of the user's ``id_field``, if one is named."""
MAX_EXACT = 2**53
"""Floats hold whole numbers up to here exactly."""

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Parts:
    """Files of keys. Documents are numbered in the order of file names and rows."""

    folder: Folder
    names: tuple[str, ...]
    starts: tuple[int, ...]
    """The number of the first document of each part, then the number of all documents."""

    @classmethod
    def found(cls, folder: Folder) -> Parts:
        names = tuple(name.removesuffix(KEYS) for name in folder.names() if name.endswith(KEYS))
        starts = [0]
        for name in names:
            starts.append(starts[-1] + _rows(folder, name))
        return cls(folder, names, tuple(starts))

    def __len__(self) -> int:
        return len(self.names)

    @property
    def documents(self) -> int:
        return self.starts[-1]

    def table(self, part: int, columns: Sequence[str]) -> pa.Table:
        return read_arrow(self.folder, self.names[part] + KEYS, columns)

    def numbers(self, part: int, column: str) -> Array:
        """Return a column of numbers of one part."""
        found: Array = numbers_of(self.table(part, [column]).column(0))
        return found

    def all_numbers(self, column: str) -> Iterator[tuple[int, Array]]:
        """Yield a column of numbers part by part, each with the number of its first document."""
        for part in range(len(self)):
            yield self.starts[part], self.numbers(part, column)

    def place(self, documents: Array) -> tuple[Array, Array]:
        """Return the parts and rows of documents."""
        starts = np.asarray(self.starts)
        part = np.searchsorted(starts, documents, side="right") - 1
        return part, documents - starts[part]

    def take(self, documents: Array, columns: Sequence[str]) -> pa.Table:
        """Return the rows of documents, in the order of ``documents``."""
        order = np.argsort(documents, kind="stable")
        part, row = self.place(documents[order])
        tables = []
        edges = np.flatnonzero(np.diff(part, prepend=-1)).tolist()
        for begin, end in zip(edges, [*edges[1:], len(part)][: len(edges)], strict=True):
            tables.append(_decoded(self.table(int(part[begin]), columns).take(int_array(row[begin:end]))))
        if not tables:
            return self.table(0, columns).slice(0, 0)
        back = np.empty(len(order), np.int64)
        back[order] = np.arange(len(order))
        return pa.concat_tables(tables).take(int_array(back))


def _decoded(table: pa.Table) -> pa.Table:
    """Decode dictionaries, which may hold more values than the rows."""
    for n, field in enumerate(table.schema):
        if pa.types.is_dictionary(field.type):
            table = table.set_column(n, field.name, table.column(n).cast(field.type.value_type))
    return table


def _rows(folder: Folder, name: str) -> int:
    rows: int = read_arrow(folder, name + KEYS, [SIZE]).num_rows
    return rows


def common_columns(
    batch: DocumentBatch, text_field: str, score_field: str | None, id_field: str | None
) -> dict[str, Any]:
    """Return the columns of all keys of a batch."""
    from gristmill.stages.text.filters.columns import column_of, only_texts_of
    from gristmill.tasks.document import ID

    texts = only_texts_of(batch, text_field)
    columns: dict[str, Any] = {IDENT: batch.data.column(ID), SIZE: int_array(texts.ends - texts.starts)}
    if score_field is not None:
        columns[SCORE] = scores_of(batch.data.schema.field(score_field), column_of(batch, score_field))
    if id_field is not None:
        columns[OWN_ID] = own_ids(batch, id_field)
    return columns


def own_ids(batch: DocumentBatch, id_field: str) -> pa.Array:
    """Return the values of a field as text, which does not depend on the type of the column in a batch."""
    from gristmill import fast_json
    from gristmill.stages.text.filters.columns import column_of
    from gristmill.tasks.arrow import is_json

    column = column_of(batch, id_field)
    if not is_json(batch.data.schema.field(id_field)):
        if pa.types.is_string(column.type) or pa.types.is_large_string(column.type) or pa.types.is_integer(column.type):
            return column.cast(pa.large_string())
        return pa.array([_id_text(value) for value in column.to_pylist()], pa.large_string())
    values = (None if text is None else fast_json.loads(text) for text in column.to_pylist())
    return pa.array([_id_text(value) for value in values], pa.large_string())


def _id_text(value: Any) -> str | None:
    """Return a value as JSON text, without quotes around a string; bytes in hexadecimal."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, float):
        return str(int(value)) if value.is_integer() and abs(value) < MAX_EXACT else repr(value)
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str).strip('"')


def without_text(batch: DocumentBatch, text_field: str) -> tuple[Array, Array]:
    """Return the rows without a text, and a hash of the id of each: they are duplicates of no document."""
    from gristmill.kernels.signatures import exact_hashes
    from gristmill.kernels.texts import Texts
    from gristmill.stages.text.filters.columns import column_of
    from gristmill.tasks.document import ID

    column = column_of(batch, text_field)
    if not column.null_count:
        return np.zeros(0, np.int64), np.zeros((0, 2), np.uint64)
    rows = np.flatnonzero(column.is_null().to_numpy())
    return rows, exact_hashes(Texts.of(batch.data.column(ID).take(pa.array(rows)).to_pylist()), seed=1)


def scores_of(field: pa.Field, column: pa.ChunkedArray) -> Array:
    """Return the numbers that rank documents, as doubles. A missing number is NaN, and worse than any other.

    The type of the column may differ between batches. Integers above 2^53 that round to the same double are equal.
    """
    from gristmill import fast_json
    from gristmill.tasks.arrow import is_json

    kind = column.type if column.null_count < len(column) else pa.null()
    if is_json(field):  # whole numbers and others, in one column
        values = [None if text is None else fast_json.loads(text) for text in column.to_pylist()]
        if all(type(value) in (int, float, type(None)) for value in values):
            floats = [None if value is None else float(value) for value in values]
            column, kind = pa.chunked_array([pa.array(floats, pa.float64())]), pa.float64()
    if not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_null(kind)):
        raise TypeError(f"column {field.name!r} holds {kind}, not numbers: documents are ranked by it.")
    scores: Array = column.cast(pa.float64(), safe=False).to_numpy()
    return scores
