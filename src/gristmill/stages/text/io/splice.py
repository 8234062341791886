"""JSON lines put together from pieces of others: all rows at once, over one buffer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from gristmill import fast_json
from gristmill.lazy import Array
from gristmill.stages.text.io.raw_lines import NOTHING, Edges, Scanned, as_bytes, frozen


@dataclass
class ColumnChange:
    """The values of a column in some of the lines."""

    name: str
    rows: Array
    """The rows, in order."""
    values: Edges
    """The JSON text for each of them."""


class RowsOfPieces:
    """Pieces of a buffer that others can be added to, for rows by columns of pieces."""

    def __init__(self, data: Array, rows: int) -> None:
        self.rows = rows
        self._data = data
        self._parts: list[Array] = []
        self._size = data.size
        self.starts: list[Array] = []
        self.ends: list[Array] = []

    def store(self, texts: Edges) -> tuple[Array, Array]:
        """Add texts to the buffer, and return where they are."""
        begin = self._size
        self._parts.append(texts.data)
        self._size += texts.data.size
        return texts.starts + begin, texts.ends + begin

    def add(self, starts: Array, ends: Array) -> None:
        """The next piece of each row."""
        if np.array_equal(starts, ends):
            return
        self.starts.append(starts)
        self.ends.append(ends)

    def add_constant(self, text: bytes, where: Array) -> None:
        """The same piece in the rows for which ``where`` is true, nothing in the others."""
        start, end = self.store(Edges.of_list([text]))
        self.add(np.where(where, start[0], 0), np.where(where, end[0], 0))

    def joined(self) -> tuple[Array, Array]:
        """All rows end to end, and where they begin and end."""
        from gristmill.kernels import json_lines

        if not self.starts:  # no rows, or nothing in any of them
            return NOTHING, np.zeros(self.rows + 1, dtype=np.int64)
        more = as_bytes(np.concatenate(self._parts)) if self._parts else NOTHING
        columns = len(self.starts)
        starts, ends = (frozen(np.stack(x, axis=1).ravel()) for x in (self.starts, self.ends))
        if (ends < starts).any():  # the kernel does not look, and would write anywhere
            raise ValueError("replacements in a line overlap")
        out, edges = json_lines.gather(self._data, more, starts, ends)
        return out, np.ascontiguousarray(edges[::columns])


def binary_array(out: Array, edges: Array) -> pa.Array:
    return pa.Array.from_buffers(pa.large_binary(), len(edges) - 1, [None, pa.py_buffer(edges), pa.py_buffer(out)])


def project(scanned: Scanned, changes: Sequence[ColumnChange] = ()) -> pa.Array:
    """Lines that hold the scanned keys only, in their order, with their values or the changed ones."""
    rows = len(scanned.lines.starts)
    pieces = RowsOfPieces(scanned.lines.data, rows)
    by_name = {change.name: change for change in changes}
    empty = np.ones(rows, dtype=bool)
    pieces.add_constant(b"{", empty)
    for k, name in enumerate(scanned.keys):
        starts, ends = scanned.spans[:, k, 0].copy(), scanned.spans[:, k, 1].copy()
        if name in by_name:
            starts[by_name[name].rows], ends[by_name[name].rows] = pieces.store(by_name[name].values)
        there = starts >= 0
        label = fast_json.dumps(name) + b":"
        pieces.add_constant(b",", there & ~empty)
        pieces.add_constant(label, there)
        pieces.add(np.where(there, starts, 0), np.where(there, ends, 0))
        empty &= ~there
    pieces.add_constant(b"}", np.ones(rows, dtype=bool))
    return binary_array(*pieces.joined())


def splice(scanned: Scanned, changes: Sequence[ColumnChange]) -> pa.Array:
    """Lines with changed values in place of the old ones, and new members before the closing brace.

    Every change must be of a key that was scanned.
    """
    rows = len(scanned.lines.starts)
    pieces = RowsOfPieces(scanned.lines.data, rows)
    closing = np.abs(scanned.closing)
    stored = [pieces.store(change.values) for change in changes]
    replaced = [_replaced(scanned, change, *where, closing) for change, where in zip(changes, stored, strict=True)]
    at = scanned.lines.starts
    if replaced:
        # columns may stand in any order in a line: replacements are made from left to right, row by row
        froms, tos, starts, ends = (np.stack(x, axis=1) for x in zip(*replaced, strict=True))
        order = np.argsort(froms, axis=1, kind="stable")
        froms, tos, starts, ends = (np.take_along_axis(x, order, axis=1) for x in (froms, tos, starts, ends))
        for k in range(len(changes)):
            pieces.add(at, froms[:, k])
            pieces.add(starts[:, k], ends[:, k])
            at = tos[:, k]
    pieces.add(at, closing)
    empty = scanned.closing <= 0
    for change, (first, stop) in zip(changes, stored, strict=True):
        missing = scanned.spans[:, scanned.keys.index(change.name), 0] < 0
        new = np.zeros(rows, dtype=bool)
        new[change.rows] = missing[change.rows]
        starts, ends = np.zeros(rows, dtype=np.int64), np.zeros(rows, dtype=np.int64)
        starts[change.rows], ends[change.rows] = first, stop
        pieces.add_constant(b",", new & ~empty)
        pieces.add_constant(fast_json.dumps(change.name) + b":", new)
        pieces.add(np.where(new, starts, 0), np.where(new, ends, 0))
        empty &= ~new
    pieces.add(closing, scanned.lines.ends)
    return binary_array(*pieces.joined())


def _replaced(
    scanned: Scanned, change: ColumnChange, first: Array, stop: Array, closing: Array
) -> tuple[Array, Array, Array, Array]:
    """From where to where each line is replaced, and the piece that comes there: nothing at its end, if not at all."""
    span = scanned.spans[:, scanned.keys.index(change.name)]
    mask = np.zeros(len(closing), dtype=bool)
    mask[change.rows] = span[change.rows, 0] >= 0
    starts, ends = np.zeros(len(closing), dtype=np.int64), np.zeros(len(closing), dtype=np.int64)
    starts[change.rows], ends[change.rows] = first, stop
    return (
        np.where(mask, span[:, 0], closing),
        np.where(mask, span[:, 1], closing),
        np.where(mask, starts, 0),
        np.where(mask, ends, 0),
    )


def concat_lines(parts: Sequence[Edges]) -> pa.Array:
    """The lines of several buffers as one column."""
    from gristmill.kernels import json_lines

    arrays = [binary_array(*json_lines.gather(part.data, NOTHING, part.starts, part.ends)) for part in parts]
    return arrays[0] if len(arrays) == 1 else pa.concat_arrays(arrays or [pa.array([], type=pa.large_binary())])
