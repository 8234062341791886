"""Keep the raw lines of documents in step with the columns that a user's stage drops or renames."""

from __future__ import annotations

from collections.abc import Sequence, Set
from typing import TYPE_CHECKING

from gristmill.tasks import DocumentBatch
from gristmill.tasks.document import RAW

if TYPE_CHECKING:
    import pyarrow as pa


def take_out_dropped(batch: DocumentBatch, before: Sequence[str]) -> None:
    """Take out of the raw lines what a stage that was given the columns ``before`` has not given back.

    This is done to the documents of the batch and to those that it excluded, each by the columns of its own table.
    Fields of a line that were never read into a column stay.
    """
    gone = set(before).difference(batch.columns)
    if gone and RAW in batch.selection()[0].column_names:
        batch.data = _without(batch.data, gone)
    for dropped in batch.account.dropped:
        names = dropped.table.column_names
        if (missing := set(before).difference(names)) and RAW in names:
            dropped.table, dropped.places = _without(dropped.rows, missing), None


def _without(table: pa.Table, names: Set[str]) -> pa.Table:
    """The table with raw lines that have none of these fields."""
    import pyarrow as pa
    import pyarrow.compute as pc

    from gristmill.stages.text.io.raw_lines import Edges, without
    from gristmill.stages.text.io.splice import concat_lines
    from gristmill.tasks.arrow import one_array

    column = one_array(table.column(RAW)).cast(pa.large_binary())
    lines: pa.Array = concat_lines([without(Edges.of_column(column.fill_null(b"{}")), names)])
    if column.null_count:  # documents that a stage made have no line
        lines = pc.if_else(column.is_valid(), lines, None)
    return table.set_column(table.column_names.index(RAW), pa.field(RAW, pa.large_binary()), lines)
