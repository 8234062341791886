"""Documents as an Arrow table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from gristmill.tasks.task import Task

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa


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
        super().__setattr__(name, value)

    def __getstate__(self) -> object:
        from gristmill.tasks import arrow

        state = super().__getstate__()
        if isinstance(state, tuple):  # a subclass with slots: (dict or None, slots)
            return tuple(arrow.compact_state(part) for part in state)
        return arrow.compact_state(state)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.task_id!r}, {self.num_items} rows, columns={self.columns})"

    @property
    def num_items(self) -> int:
        rows: int = self.data.num_rows
        return rows

    @property
    def columns(self) -> list[str]:
        """The names of the columns, in order."""
        return list(self.data.column_names)

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

    def slice(self, start: int, stop: int) -> Self:
        start, stop, _ = slice(start, stop).indices(self.num_items)
        return self._with_data(self.data.slice(start, max(stop - start, 0)))
