"""Documents as an Arrow table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from types import MemberDescriptorType
from typing import TYPE_CHECKING, Any, Self

from gristmill.tasks.account import Dropped
from gristmill.tasks.task import Task

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

ID = "_gristmill_id"
"""The hidden column of a document's id: ``<source file>#<byte offset or row>``."""
RAW = "_gristmill_raw"
"""The hidden column of the line that a document was read from."""
LOCATION = "_gristmill_location"
"""The hidden column of the URL of a document's file, with secrets, where the shown one does not open it."""
HIDDEN = (ID, RAW, LOCATION)


@dataclass(repr=False)
class DocumentBatch(Task[Any]):
    """A batch of documents, one per row. ``data`` is a `pyarrow.Table`, whatever it was set from.

    ``data`` takes a pyarrow Table or RecordBatch or a pandas DataFrame, at construction and on assignment. A frame is
    converted once and its index is not kept: call ``reset_index()`` first if it holds data. Columns of strings become
    ``large_string``; values of a frame that have no Arrow type in common become JSON text. Slices share memory with
    the whole; when pickled they take only what they show.

        batch = DocumentBatch(data=pa.table({"text": ["a", "b"]}))
        frame = batch.to_pandas()
        batch.data = frame[frame.text != "a"]
    """

    _table: Any = field(init=False, repr=False, compare=False)
    _rows: Any = field(default=None, init=False, repr=False, compare=False)
    """The rows of the table that `keep` has left; None: all. They are copied only when ``data`` is asked for."""
    _cache: dict[Any, Any] | None = field(default=None, init=False, repr=False, compare=False)

    _transient = ("_account", "_cache", "_rows")

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if isinstance(vars(cls).get("data"), MemberDescriptorType):
            del cls.data  # the slot that @dataclass(slots=True) makes of each field would hide the property

    @property  # type: ignore[misc]  # the field of `Task` as a property
    def data(self) -> Any:
        if self._rows is not None:
            self._table, self._rows = rows_of(self._table, self._rows), None
        return self._table

    @data.setter
    def data(self, data: Any) -> None:
        from gristmill.tasks import arrow

        self._table, self._rows, self._cache = arrow.as_table(data), None, None

    def selection(self) -> tuple[pa.Table, Any]:
        """A table and the rows of it, in order, that are the documents; None for the rows if they are all.

        The same as ``data``, without a copy of rows.
        """
        return self._table, self._rows

    def values_of(self, column: str) -> pa.ChunkedArray:
        """One column of the documents. Unlike ``data``, this copies no row of the other columns."""
        table, rows = self.selection()
        return (table if rows is None else rows_of(table.select([column]), rows)).column(column)

    def _with_selection(self, table: pa.Table, rows: Any) -> Self:
        clone = self._with_data(table)
        clone._rows = rows
        return clone

    def __getstate__(self) -> object:
        from gristmill.tasks import arrow

        changes = {**dict.fromkeys(self._transient), "_table": arrow.compact(self.data)}
        state: Any = super().__getstate__()
        if isinstance(state, tuple):  # a subclass with slots: (dict or None, slots), where ``data`` still has a name
            return tuple(part and {k: changes.get(k, v) for k, v in part.items() if k != "data"} for part in state)
        return {key: changes.get(key, value) for key, value in state.items()}

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.task_id!r}, {self.num_items} rows, columns={self.columns})"

    @property
    def num_items(self) -> int:
        table, rows = self.selection()
        count: int = table.num_rows if rows is None else len(rows)
        return count

    @property
    def columns(self) -> list[str]:
        """The names of the columns, in order, without the hidden ones."""
        return [name for name in self.selection()[0].column_names if name not in HIDDEN]

    @property
    def has_ids(self) -> bool:
        """Whether its documents have the column of their ids."""
        return ID in self.selection()[0].column_names

    def get_columns(self) -> list[str]:
        """The same as ``columns``."""
        return self.columns

    def to_pyarrow(self) -> pa.Table:
        """The table itself; nothing is copied."""
        table: pa.Table = self.data
        return table

    def to_pandas(self) -> pd.DataFrame:
        """The table as a frame of its own with a plain index 0, 1, ...

        Integers with nulls become pandas' nullable integers, so that no value is rounded on the way and back. Lists
        and objects that were read from JSON are lists and dicts of Python; a key that only other documents have is
        None.
        """
        from gristmill.tasks import arrow

        return arrow.to_frame(self.data)

    def to_pylist(self) -> list[dict[str, Any]]:
        """The documents as dicts, with lists and dicts where JSON had them, also in columns of several kinds."""
        from gristmill.tasks import arrow

        return arrow.to_rows(self.data)

    @property
    def cache(self) -> dict[Any, Any]:
        """Values computed from ``data`` that this worker may need again; empty once ``data`` is set.

        Values have ``select(mask)``, which `keep` calls for the batch that it returns.
        """
        if self._cache is None:
            self._cache = {}
        return self._cache

    def keep(
        self, mask: Any, reason: str | Sequence[str] = "unspecified", scores: Sequence[float | None] | None = None
    ) -> Self:
        """The documents for which ``mask`` is true; the others are dropped for a reason.

        ``reason`` is one for all, or one for each document that is dropped; so are ``scores``. Both come to the
        ledger and to the excluded documents beside the output.

            return batch.keep(lengths > 100, reason="too short")
        """
        import numpy as np

        mask = np.asarray(mask, dtype=bool)
        kept = self.select(mask)
        lost = int((~mask).sum())
        if lost:
            reasons = [reason] * lost if isinstance(reason, str) else list(reason)
            if len(reasons) != lost or (scores is not None and len(scores) != lost):
                raise ValueError(f"keep() wants one reason and score for each of the {lost} rows that are dropped.")
            table, rows = self.selection()
            places = np.flatnonzero(~mask) if rows is None else rows[~mask]
            kept.account.dropped.append(Dropped(table, reasons, scores, places))
        return kept

    def select(self, mask: Any) -> Self:
        """The documents for which ``mask`` is true, with the account. The caller reports the others: `keep` does.

        What is in the cache is selected too.
        """
        import numpy as np

        mask = np.asarray(mask, dtype=bool)
        if mask.shape != (self.num_items,):
            raise ValueError(f"keep() wants one True or False for each of {self.num_items} rows, not {mask.shape}.")
        is_whole = bool(mask.all())
        table, rows = self.selection()
        if not is_whole:
            rows = np.flatnonzero(mask) if rows is None else rows[mask]
        selected = self._with_selection(table, rows)
        selected.account = self.take_account()
        selected.cache.update({key: one if is_whole else one.select(mask) for key, one in self.cache.items()})
        return selected

    def slice(self, start: int, stop: int) -> Self:
        start, stop, _ = slice(start, stop).indices(self.num_items)
        return self._with_data(self.data.slice(start, max(stop - start, 0)))


def rows_of(table: pa.Table, rows: Any) -> pa.Table:
    """Some rows of a table, which are given in order."""
    import numpy as np

    from gristmill.tasks import arrow

    mask = np.zeros(table.num_rows, dtype=bool)
    mask[rows] = True
    return table.filter(arrow.mask_array(mask))


def in_parts(batch: DocumentBatch, size: int) -> Iterator[DocumentBatch]:
    """The batch in parts of about ``size`` bytes, at least one; they share its memory."""
    rows = batch.num_items
    if batch.data.nbytes <= size or rows < 2:
        yield batch
        return
    step = max(1, rows * size // batch.data.nbytes)
    for start in range(0, rows, step):
        yield batch.slice(start, min(rows, start + step))


def joined(parts: Sequence[DocumentBatch]) -> DocumentBatch:
    """The documents of all parts in one batch. A column that has a type only in some of the parts gets it in all."""
    import pyarrow as pa

    return parts[0]._with_data(pa.concat_tables([part.data for part in parts], promote_options="permissive"))


def rejoined(whole: pa.Table, before: Sequence[pa.Table], parts: Sequence[DocumentBatch]) -> DocumentBatch:
    """The documents of parts that ``whole`` was cut into, when their tables were those ``before``.

    If nothing but `keep` was done to them since, no row is copied.
    """
    import numpy as np

    rows = []
    start = 0
    for table, part in zip(before, parts, strict=True):
        now, left = part.selection()
        if now is not table:
            return joined(parts)
        rows.append(start + (np.arange(table.num_rows) if left is None else left))
        start += table.num_rows
    together = np.concatenate(rows)
    return parts[0]._with_selection(whole, None if len(together) == whole.num_rows else together)
