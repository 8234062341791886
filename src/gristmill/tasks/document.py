"""Documents as an Arrow table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from gristmill.tasks.account import Dropped
from gristmill.tasks.task import PASSING, Task

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

ID = "_gristmill_id"
"""The hidden column of a document's identity: ``<source file>#<byte offset or row>``."""
RAW = "_gristmill_raw"
"""The hidden column of the line that a document was read from."""
HIDDEN = (ID, RAW)


@dataclass(repr=False)
class DocumentBatch(Task[Any]):
    """A batch of documents, one per row. ``data`` is a `pyarrow.Table`, whatever it was set from.

    ``data`` takes a pyarrow Table or RecordBatch or a pandas DataFrame, at construction and on assignment. A frame is
    converted once and its index is not kept: call ``reset_index()`` first if it holds data. Columns of strings become
    ``large_string``. Slices share memory with the whole; when pickled they take only what they show.

        batch = DocumentBatch(data=pa.table({"text": ["a", "b"]}))
        frame = batch.to_pandas()
        batch.data = frame[frame.text != "a"]
    """

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "data":
            from gristmill.tasks import arrow

            value = arrow.as_table(value)
            self.__dict__.pop("_cache", None)
        super().__setattr__(name, value)

    def __getstate__(self) -> object:
        from gristmill.tasks import arrow

        state = super().__getstate__()
        if isinstance(state, tuple):  # a subclass with slots: (dict or None, slots)
            return tuple(arrow.compact_state(part, PASSING) for part in state)
        return arrow.compact_state(state, PASSING)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.task_id!r}, {self.num_items} rows, columns={self.columns})"

    @property
    def num_items(self) -> int:
        rows: int = self.data.num_rows
        return rows

    @property
    def columns(self) -> list[str]:
        """The names of the columns, in order, without the hidden ones."""
        return [name for name in self.data.column_names if name not in HIDDEN]

    def get_columns(self) -> list[str]:
        """The same as ``columns``."""
        return self.columns

    def to_pyarrow(self) -> pa.Table:
        """The table itself; nothing is copied."""
        table: pa.Table = self.data
        return table

    def to_pandas(self) -> pd.DataFrame:
        """The table as a frame of its own with a plain index 0, 1, ...

        Integers with nulls become pandas' nullable integers, so that no value is rounded on the way and back.
        """
        from gristmill.tasks import arrow

        return arrow.to_frame(self.data)

    @property
    def cache(self) -> dict[Any, Any]:
        """What was computed of ``data`` and may be wanted again in this worker; gone when ``data`` is set.

        Values have ``select(mask)``, by which `keep` takes them along.
        """
        cache: dict[Any, Any] = self.__dict__.setdefault("_cache", {})
        return cache

    def keep(
        self, mask: Any, reason: str | Sequence[str] = "unspecified", scores: Sequence[float | None] | None = None
    ) -> Self:
        """The documents for which ``mask`` is true; the others are dropped for a reason.

        ``reason`` is one for all, or one for each document that is dropped; so are ``scores``. Both come to the
        ledger and to the excluded documents beside the output.

            return batch.keep(lengths > 100, reason="too short")
        """
        import numpy as np

        from gristmill.tasks import arrow

        mask = np.asarray(mask, dtype=bool)
        if mask.shape != (self.num_items,):
            raise ValueError(f"keep() wants one True or False for each of {self.num_items} rows, not {mask.shape}.")
        lost = int((~mask).sum())
        account = self.take_account()
        if not lost:
            kept = self._with_data(self.data)
        else:
            kept = self._with_data(self.data.filter(arrow.mask_array(mask)))
        if account is not None:
            kept.__dict__["_account"] = account
        kept.cache.update({key: value.select(mask) if lost else value for key, value in self.cache.items()})
        if lost:
            reasons = [reason] * lost if isinstance(reason, str) else list(reason)
            if len(reasons) != lost or (scores is not None and len(scores) != lost):
                raise ValueError(f"keep() wants one reason and score for each of the {lost} rows that are dropped.")
            kept.account.dropped.append(Dropped(self.data.filter(arrow.mask_array(~mask)), reasons, scores))
        return kept

    def slice(self, start: int, stop: int) -> Self:
        start, stop, _ = slice(start, stop).indices(self.num_items)
        return self._with_data(self.data.slice(start, max(stop - start, 0)))


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
