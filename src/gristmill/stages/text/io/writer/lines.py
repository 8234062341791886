"""Lines of documents: as they were read, with the changed values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from gristmill import fast_json
from gristmill.stages.text.io import json_columns, json_values, splice
from gristmill.stages.text.io.raw_lines import Edges, as_bytes, scan_valid
from gristmill.tasks.arrow import int_array, one_array


def edited(lines: Edges, table: pa.Table, trusted: set[str], fields: Sequence[str] | None) -> Edges:
    """The lines with the changed values of the columns of ``table``, reduced to ``fields`` unless that is None.

    ``trusted`` columns have not changed since they were read.
    """
    names = [
        name
        for name, field in zip(table.column_names, table.schema, strict=True)
        if (fields is None or name in fields) and not (name in trusted and json_columns.was_read(field))
    ]
    if not names and fields is None:
        return lines
    scanned = scan_valid(lines, names if fields is None else list(fields))
    changes = []
    for name in names:
        field, array = table.schema.field(name), one_array(table.column(name))
        key = scanned.keys.index(name)
        is_json = json_values.is_json_text(scanned, key, field, array)
        rows = json_values.changed(scanned, key, array, is_json)
        if not rows.size:
            continue
        new = array.take(int_array(rows))
        if is_json:
            values = json_values.dumped_like(scanned, key, rows, field, new)
        elif pa.types.is_nested(array.type):
            json_values.check_no_bytes(field)
            values = json_values.dumped_nested(scanned, key, rows, new)
        else:
            values = json_values.dumped(field, new)
        changes.append(splice.ColumnChange(name, rows, values))
    if fields is not None:
        return Edges.of_column(splice.project(scanned, changes))
    return Edges.of_column(splice.splice(scanned, changes)) if changes else lines


def made(table: pa.Table) -> Edges:
    """Lines from columns alone, nulls included."""
    rows = table.num_rows
    lines = splice.RowsOfPieces(np.zeros(0, dtype=np.uint8), rows)
    everywhere = np.ones(rows, dtype=bool)
    for number, (name, field) in enumerate(zip(table.column_names, table.schema, strict=True)):
        lines.add_constant((b"," if number else b"{") + fast_json.dumps(name) + b":", everywhere)
        lines.add(*lines.store(json_values.dumped(field, one_array(table.column(name)))))
    lines.add_constant(b"}" if table.num_columns else b"{}", everywhere)
    out, edges = lines.joined()
    return Edges(as_bytes(out), edges[:-1], edges[1:])


def joined(lines: Edges) -> Any:
    """All lines, each with a line feed at its end."""
    from gristmill.kernels import json_lines

    out: Any = json_lines.join_lines(as_bytes(lines.data), lines.starts, lines.ends)
    return memoryview(out)
