"""Lines that are collected for a batch of documents."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

from gristmill import fast_json
from gristmill.lazy import Array
from gristmill.stages.text.io import json_columns
from gristmill.stages.text.io.raw_lines import Edges, Scanned, as_bytes, keys_of, scan
from gristmill.stages.text.io.reader.batches import SHOWN_BYTES, BatchBuilder, ids
from gristmill.stages.text.io.reader.choice import Choice
from gristmill.stages.text.io.reader.columns import Wanted
from gristmill.stages.text.io.splice import concat_lines, project
from gristmill.tasks import BadRecord, DocumentBatch
from gristmill.tasks.arrow import mask_array
from gristmill.tasks.document import ID, RAW

BOM = b"\xef\xbb\xbf"
_OWN_FIELDS = [pa.field(ID, pa.large_string()), pa.field(RAW, pa.large_binary())]


def line_edges(array: Array, offset: int) -> tuple[Array, Array, Array]:
    """Return where the lines that are not empty start and end in ``array``, and their positions in the file."""
    from gristmill.kernels import json_lines

    feeds = json_lines.line_feeds(array)
    ends = feeds if feeds.size and feeds[-1] == array.size - 1 else np.append(feeds, array.size)
    starts = np.concatenate([np.zeros(1, dtype=np.int64), ends[:-1] + 1])
    positions = starts + offset
    if offset == 0 and array[:3].tobytes() == BOM:
        starts[0] = 3
    ends = ends - ((ends > starts) & (array[ends - 1] == 13))
    there = ends > starts
    if not there.all():
        starts, ends, positions = starts[there], ends[there], positions[there]
    return starts, ends, positions


def not_blank(array: Array, starts: Array, ends: Array) -> Array:
    """Return a mask of the lines that hold more than spaces and tabs."""
    mask = np.ones(len(starts), dtype=bool)
    for row in np.flatnonzero(np.isin(array[starts], (9, 13, 32))).tolist():
        mask[row] = bool(array[starts[row] : ends[row]].tobytes().strip(b" \t\r"))
    return mask


class Records(BatchBuilder):
    """Collects lines, of one file or several, until there are enough for a batch."""

    def __init__(self, wanted: Wanted, note_read: Callable[[int], None] | None = None) -> None:
        super().__init__(note_read)
        self.wanted = wanted
        self.choice = Choice()
        """Which lines of the current file are taken."""
        self.size = 0
        self._lines: list[Edges] = []
        self._sources: list[tuple[str, Array]] = []

    @property
    def is_empty(self) -> bool:
        """Whether nothing was collected, not even the name of a file that was opened."""
        return not self._lines and not self.account.read

    def add(self, path: str, data: Any, offset: int) -> None:
        """The lines in ``data``, which begins with a line, ``offset`` bytes into the file."""
        array = as_bytes(data)
        if array.size == 0:
            self.account.read[path] += 0
            return
        starts, ends, positions = line_edges(array, offset)
        if not self.choice.takes_all:
            array, starts, ends, positions = self._chosen(array, starts, ends, positions)
        self.account.read[path] += len(starts)
        self._lines.append(Edges(array, starts, ends))
        self._sources.append((path, positions))
        self.size += array.size
        self.report_progress()

    def _chosen(self, array: Array, starts: Array, ends: Array, positions: Array) -> tuple[Array, Array, Array, Array]:
        """The lines that are taken, in an array of their own: that of all lines can go."""
        rows = np.flatnonzero(not_blank(array, starts, ends))
        rows = rows[self.take(self.choice, positions[rows])]
        sizes = ends[rows] - starts[rows]
        edges = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(sizes)])
        pieces = [array[a:b] for a, b in zip(starts[rows].tolist(), ends[rows].tolist(), strict=True)]
        lines = np.concatenate(pieces) if pieces else array[:0]
        return lines, edges[:-1], edges[1:], positions[rows]

    def add_rest(self, path: str, position: int, reason: str, begun: bytes) -> None:
        """The rest of a file that cannot be read, and the line that was begun before it."""
        if self.choice.is_full:
            return
        if begun.strip() and why_not(begun, self.wanted.text_field) is None:
            self.add(path, begun, position)
            position += len(begun)
            begun = b""
            if self.choice.is_full:
                return
        self.choice.count_one()
        self.add_bad(path, position, reason, begun)

    def add_long(self, path: str, position: int, reason: str, raw: bytes) -> None:
        """A line that is too long to be read."""
        if self.take(self.choice, np.array([position]))[0]:
            self.add_bad(path, position, reason, raw)

    def batch(self, known: int | None = None) -> DocumentBatch:
        """The documents that were collected, with their account.

        ``known`` is how many documents these lines were before. If there are as many lines, each of them is one.
        """
        raw = concat_lines(self._lines)
        self._lines = []  # the buffers of what was read can be freed
        identity = pa.concat_arrays([ids(*source) for source in self._sources] or [pa.array([], pa.large_string())])
        if known == len(raw) and self.wanted.columns is not None and not self._taken_out():
            table = pa.Table.from_arrays([identity, raw], schema=pa.schema(_OWN_FIELDS))
        else:
            table = self._judged(raw, identity)
        order = {path: n for n, path in enumerate(self.account.read)}
        self.account.bad.sort(key=lambda record: (order[record.file], record.position))
        self.size, self._sources = 0, []
        return self.batch_of(table)

    def _judged(self, raw: pa.Array, identity: pa.Array) -> pa.Table:
        """Those of the lines that are documents."""
        first = [self.wanted.text_field] if self.wanted.text_field is not None else []
        scanned = scan(Edges.of_column(raw), list(dict.fromkeys([*first, *self._taken_out()])))
        keep = np.ones(len(raw), dtype=bool)
        for row in self._doubtful(scanned):
            keep[row] = self._judge(scanned, row)
        if not keep.all():
            raw, identity = raw.filter(mask_array(keep)), identity.filter(mask_array(keep))
            scanned = scanned.only(keep)
        return self._table(raw, identity, scanned)

    def _taken_out(self) -> list[str]:
        """The fields that are known to be taken out of lines."""
        return [*(self.wanted.columns or ()), *(self.wanted.fields or ())]

    def _doubtful(self, scanned: Scanned) -> list[int]:
        """Rows that the kernel was unsure of, or that have no text."""
        if self.wanted.text_field is None:
            return scanned.unsure
        start = scanned.spans[:, 0, 0]
        bad = start < 0
        bad[~bad] = scanned.lines.data[start[~bad]] != ord('"')
        return sorted({*np.flatnonzero(bad).tolist(), *scanned.unsure})

    def _judge(self, scanned: Scanned, row: int) -> bool:
        """Whether a line is a document; if not, it is on the account, unless it is blank."""
        line = scanned.lines.piece(row)
        path, position = self._place(row)
        if not line.strip(b" \t\r"):
            self.account.read[path] -= 1
            return False
        reason = why_not(line, self.wanted.text_field)
        if reason is None:
            scanned.settle(row)
            return True
        self.account.bad.append(BadRecord(path, position, reason, line[:SHOWN_BYTES]))
        return False

    def _place(self, row: int) -> tuple[str, int]:
        for path, positions in self._sources:
            if row < len(positions):
                return path, int(positions[row])
            row -= len(positions)
        raise IndexError(row)

    def _table(self, raw: pa.Array, identity: pa.Array, scanned: Scanned) -> pa.Table:
        wanted = self.wanted
        if wanted.fields is not None:
            scanned = scanned.of(list(wanted.fields))
            raw = project(scanned)
            columns = [name for name in wanted.fields if wanted.columns is None or name in wanted.columns]
        elif wanted.columns is None:
            needed = [] if wanted.text_field is None else [wanted.text_field]
            there = keys_of(scanned.lines) if len(raw) else wanted.if_empty
            columns = list(dict.fromkeys([*there, *needed, *wanted.required]))
            missing = [name for name in columns if name not in scanned.keys]
            if missing:
                scanned = scan(scanned.lines, columns)
                for row in scanned.unsure:
                    scanned.settle(row)
        else:
            columns = list(wanted.columns)
        columns = [name for name in columns if name not in wanted.if_there or _in_any(scanned, name)]
        made = [json_columns.column(scanned, scanned.keys.index(name)) for name in columns if name not in (ID, RAW)]
        fields = [field for field, _ in made]
        fields += _OWN_FIELDS
        return pa.Table.from_arrays([*(array for _, array in made), identity, raw], schema=pa.schema(fields))


def _in_any(scanned: Scanned, name: str) -> bool:
    return bool((scanned.spans[:, scanned.keys.index(name), 0] >= 0).any())


def why_not(line: bytes, text_field: str | None) -> str | None:
    """Return the reason why a line is no document; None if it is one."""
    try:
        value = fast_json.loads(line)
    except fast_json.JSONDecodeError as error:
        return _not_utf8(line) or f"not valid JSON: {error}"
    if not isinstance(value, dict):
        return f"not a JSON object but {_KINDS[type(value)]}"
    if text_field is None:
        return None
    if text_field not in value:
        return f"no field {text_field!r}"
    text = value[text_field]
    if text is None:
        return f"the field {text_field!r} is null"
    if not isinstance(text, str):
        return f"the field {text_field!r} is {_KINDS[type(text)]}, not a string"
    return None


_KINDS: dict[type, str] = {
    dict: "an object",
    list: "a list",
    str: "a string",
    int: "a number",
    float: "a number",
    bool: "true or false",
    type(None): "null",
}


def _not_utf8(line: bytes) -> str | None:
    try:
        line.decode("utf-8")
    except UnicodeDecodeError as error:
        return f"not valid UTF-8: byte 0x{line[error.start]:02x} at {error.start} of the line"
    return None


class RecordCounter(Records):
    """Counts the records that would be taken of a file, and finds where the last of them ends."""

    def __init__(self, choice: Choice) -> None:
        super().__init__(Wanted(text_field=None))
        self.choice = choice
        self.taken = 0
        self.stop = 0
        """The byte after the last record, in the content of the file."""

    def add(self, path: str, data: Any, offset: int) -> None:
        array = as_bytes(data)
        if not array.size:
            return
        starts, ends, positions = line_edges(array, offset)
        rows = np.flatnonzero(not_blank(array, starts, ends))
        mask, _ = self.choice.take(positions[rows])
        self.taken += int(np.count_nonzero(mask))
        if mask.any():
            self.stop = offset + int(ends[rows[np.flatnonzero(mask)[-1]]]) + 1

    def add_bad(self, path: str, position: int, reason: str, raw: bytes = b"") -> None:
        self.taken += 1
        self.stop = position + len(raw)
