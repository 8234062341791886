"""A column of JSON lines, and where the values of some keys stand in it."""

from __future__ import annotations

import re
from collections.abc import Sequence, Set
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from gristmill import fast_json
from gristmill.lazy import Array
from gristmill.tasks.arrow import one_array

_SPACE = re.compile(rb"[ \t\r\n]*")
_STRING = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
_PLAIN = re.compile(rb"[^ \t\r\n,\]}]+")
_IN_CONTAINER = re.compile(rb'["{}\[\]]')


@dataclass(frozen=True)
class Members:
    """The members of an object in the order of the line; of a key that is there twice, both."""

    spans: list[tuple[str, int, int]]
    """(key, start, stop of the value)."""
    closing: int
    """Where the brace stands that closes the object."""
    keys: list[int]
    """Where each key begins."""


def members(line: bytes) -> Members:
    """The members of a line that is known to be a valid JSON object."""
    at = _space(line, 0) + 1
    spans: list[tuple[str, int, int]] = []
    keys: list[int] = []
    while True:
        at = _space(line, at)
        if line[at] == ord("}"):
            return Members(spans, at, keys)
        if line[at] == ord(","):
            at = _space(line, at + 1)
        begin = at
        stop = _string_end(line, begin)
        key: str = fast_json.loads(line[begin:stop])
        start = _space(line, _space(line, stop) + 1)
        at = _value_end(line, start)
        spans.append((key, start, at))
        keys.append(begin)


def without_members(line: bytes, names: Set[str]) -> bytes:
    """A line that is known to be a valid object, less all members of these names, each with one comma."""
    found = members(line)
    if not found.spans:
        return line
    out = [line[: found.keys[0]]]
    before, kept = 0, False
    for (key, _, stop), begin in zip(found.spans, found.keys, strict=True):
        if key not in names:
            out.append(line[before if kept else begin : stop])
            kept = True
        before = stop
    return b"".join([*out, line[before:]])


def _space(line: bytes, at: int) -> int:
    found = _SPACE.match(line, at)
    assert found is not None
    return found.end()


def _string_end(line: bytes, at: int) -> int:
    found = _STRING.match(line, at)
    assert found is not None, "the line is a valid object"
    return found.end()


def _value_end(line: bytes, at: int) -> int:
    if line[at] == ord('"'):
        return _string_end(line, at)
    if line[at] not in b"{[":
        found = _PLAIN.match(line, at)
        assert found is not None, "the line is a valid object"
        return found.end()
    depth = 0
    while True:
        found = _IN_CONTAINER.search(line, at)
        assert found is not None, "the line is a valid object"
        at = found.end()
        if found[0] == b'"':
            at = _string_end(line, found.start())
        else:
            depth += 1 if found[0] in b"{[" else -1
            if depth == 0:
                return at


@dataclass
class Edges:
    """Pieces of a buffer: piece ``i`` is ``data[starts[i]:ends[i]]``."""

    data: Array
    starts: Array
    ends: Array

    def __post_init__(self) -> None:
        self.starts, self.ends = frozen(self.starts), frozen(self.ends)

    def piece(self, i: int) -> bytes:
        return self.data[self.starts[i] : self.ends[i]].tobytes()

    @classmethod
    def of_list(cls, texts: Sequence[bytes]) -> Edges:
        edges = np.zeros(len(texts) + 1, dtype=np.int64)
        np.cumsum([len(text) for text in texts], out=edges[1:])
        return cls(as_bytes(b"".join(texts)), edges[:-1], edges[1:])

    def __len__(self) -> int:
        return len(self.starts)

    @classmethod
    def of_column(cls, column: pa.Array | pa.ChunkedArray) -> Edges:
        """The bytes of a column of strings or binaries, not copied if it is in one piece and of a large type."""
        column = one_array(column)
        if not pa.types.is_large_binary(column.type) and not pa.types.is_large_string(column.type):
            column = column.cast(pa.large_binary())  # what has been through pandas is of a smaller type
        if not len(column):  # its buffers may be missing
            nothing = np.zeros(0, np.int64)
            return cls(as_bytes(None), nothing, nothing)
        _, offsets, data = column.buffers()
        edges = np.frombuffer(offsets, dtype=np.int64, count=len(column) + 1, offset=8 * column.offset)
        return cls(as_bytes(data), edges[:-1], edges[1:])


def as_bytes(buffer: Any) -> Array:
    """A buffer as a read-only array: the kernels are compiled for this kind of array only."""
    empty = buffer is None or len(memoryview(buffer)) == 0
    array = np.zeros(0, dtype=np.uint8) if empty else np.frombuffer(buffer, dtype=np.uint8)
    array.flags.writeable = False
    return array


def frozen(numbers: Array) -> Array:
    """Positions as a read-only array, for the same reason."""
    view: Array = np.ascontiguousarray(numbers, dtype=np.int64).view()
    view.flags.writeable = False
    return view


NOTHING = as_bytes(None)


@dataclass
class Scanned:
    """Where values stand in lines. Lines that the kernel was unsure of are marked, and bad until they are `settled`."""

    lines: Edges
    keys: list[str]
    spans: Array
    """Row, key, (start, stop) in the lines' buffer; -1 where a line has no such key."""
    closing: Array
    """Where the object closes; as a negative number if it has no members."""
    unsure: list[int] = field(default_factory=list)

    def settle(self, row: int) -> None:
        """Find the members of a line that turned out to be a valid object."""
        start = int(self.lines.starts[row])
        found = members(self.lines.piece(row))
        number = {key: k for k, key in enumerate(self.keys)}
        self.spans[row] = -1
        for key, first, stop in found.spans:
            if key in number:
                self.spans[row, number[key]] = start + first, start + stop
        self.closing[row] = start + found.closing if found.spans else -(start + found.closing)

    def only(self, mask: Array) -> Scanned:
        """The same of some of the lines, in a buffer of their own."""
        from gristmill.kernels import json_lines

        lines = Edges(self.lines.data, self.lines.starts[mask], self.lines.ends[mask])
        data, edges = json_lines.gather(lines.data, NOTHING, lines.starts, lines.ends)
        data.flags.writeable = False
        moved = edges[:-1] - lines.starts
        spans = self.spans[mask]
        spans = np.where(spans >= 0, spans + moved[:, None, None], -1)
        closing = self.closing[mask]
        closing = np.where(closing > 0, closing + moved, closing - moved)
        return Scanned(Edges(data, edges[:-1], edges[1:]), self.keys, spans, closing)

    def of(self, keys: list[str]) -> Scanned:
        """The same of some of the keys."""
        chosen = [self.keys.index(key) for key in keys]
        return Scanned(self.lines, keys, np.ascontiguousarray(self.spans[:, chosen]), self.closing, self.unsure)

    def value(self, row: int, key: int) -> bytes | None:
        """Return the JSON value of a key in a line."""
        start, stop = self.spans[row, key]
        return self.lines.data[start:stop].tobytes() if start >= 0 else None


def scan(lines: Edges, keys: Sequence[str]) -> Scanned:
    """Find the values of ``keys`` in lines, and which lines are not plainly valid objects."""
    from gristmill.kernels import json_lines

    names = [key.encode("utf-8", "surrogatepass") for key in keys]
    edges = np.zeros(len(names) + 1, dtype=np.int64)
    np.cumsum([len(name) for name in names], out=edges[1:])
    status, spans, closing = json_lines.scan(lines.data, lines.starts, lines.ends, as_bytes(b"".join(names)), edges)
    return Scanned(lines, list(keys), spans, closing, np.flatnonzero(status != json_lines.FINE).tolist())


def scan_valid(lines: Edges, keys: Sequence[str]) -> Scanned:
    """The same for lines that are known to be valid objects."""
    found = scan(lines, keys)
    for row in found.unsure:
        found.settle(row)
    return found


def without(lines: Edges, names: Set[str]) -> Edges:
    """The lines, less the members of these names; all else stays as it stands."""
    if not names:
        return lines
    scanned = scan_valid(lines, sorted(names))
    there = (scanned.spans[:, :, 0] >= 0).any(axis=1)
    if not there.any():
        return lines
    pieces = [lines.piece(row) for row in range(len(lines))]
    for row in np.flatnonzero(there).tolist():
        pieces[row] = without_members(pieces[row], names)
    return Edges.of_list(pieces)


def strings(scanned: Scanned, key: int) -> tuple[pa.Array, Array]:
    """The values of a key as large_string, null where it is no string; and a mask of where it is one."""
    from gristmill.kernels import json_lines

    data = scanned.lines.data
    start = scanned.spans[:, key, 0]
    is_string = start >= 0
    is_string[is_string] = data[start[is_string]] == ord('"')
    starts = np.where(is_string, start + 1, 0)
    ends = np.where(is_string, scanned.spans[:, key, 1] - 1, 0)
    out, edges = json_lines.unescape(data, frozen(starts), frozen(ends))
    nulls = None if is_string.all() else pa.py_buffer(np.packbits(is_string, bitorder="little"))
    array = pa.Array.from_buffers(
        pa.large_string(), len(starts), [nulls, pa.py_buffer(edges), pa.py_buffer(out)], -1 if nulls else 0
    )
    return array, is_string


def texts(scanned: Scanned, key: int) -> pa.Array:
    """Return the JSON values of a key in the lines, as large_binary; null where the key is missing."""
    from gristmill.kernels import json_lines

    spans = np.maximum(scanned.spans[:, key], 0)
    starts, ends = frozen(spans[:, 0]), frozen(spans[:, 1])
    out, edges = json_lines.gather(scanned.lines.data, NOTHING, starts, ends)
    return pa.Array.from_buffers(pa.large_binary(), len(starts), [None, pa.py_buffer(edges), pa.py_buffer(out)])


def keys_of(lines: Edges) -> list[str]:
    """All top-level keys of valid lines, in the order in which they come first."""
    found: dict[str, None] = {}
    for row in range(len(lines.starts)):
        found.update(dict.fromkeys(fast_json.loads(lines.piece(row))))
    return list(found)
