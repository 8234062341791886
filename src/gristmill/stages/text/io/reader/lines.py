"""The lines of a range of a file, and of a stream."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from gristmill.stages.text.io.compression import Damaged
from gristmill.stages.text.io.reader.files import AHEAD_BYTES, RangeFile
from gristmill.stages.text.io.reader.records import Records
from gristmill.tasks import FileRange

MAX_LINE_BYTES = 1 << 30
"""A longer line is a bad record, and is not held in memory."""
LONG_LINE_STEP = 16 << 20
PIECE_BYTES = 32 << 20
"""Lines of a range that are added at a time."""
TOO_LONG = "the line is longer than {} bytes"


def add_range(records: Records, file: RangeFile, part: FileRange) -> None:
    """The lines of a plain file whose first byte lies in a range."""
    stop = None if part.stop < 0 else part.stop
    records.account.read[part.path] += 0
    if stop == part.start:
        return
    # the byte before shows whether a line begins at the start of the range
    begin = max(part.start - 1, 0)
    data = file.read(begin, None) if stop is None else file.read_all(begin, stop, AHEAD_BYTES)
    own = len(data) if stop is None else stop - begin
    first = 0 if part.start == 0 else data.find(b"\n", 0, own) + 1
    if (part.start and not first) or first >= own:
        return
    end = len(data) if stop is None else data.find(b"\n", own - 1) + 1
    if end or len(data) < own + AHEAD_BYTES:
        _add_pieces(records, part.path, data, first, end or len(data), begin)
        return
    last = data.rfind(b"\n", first, own) + 1 or first
    if last > first:
        _add_pieces(records, part.path, data, first, last, begin)
    line = _long_line(file, data[last:], begin + len(data))
    if line is None:
        records.add_long(part.path, begin + last, TOO_LONG.format(MAX_LINE_BYTES), data[last:])
    else:
        records.add(part.path, line, begin + last)


def _add_pieces(records: Records, path: str, data: bytes | bytearray, first: int, end: int, begin: int) -> None:
    """Add whole lines of ``data``, which is ``begin`` bytes into the file: many in pieces, so that progress shows."""
    view = memoryview(data)
    while end - first > PIECE_BYTES and (stop := data.rfind(b"\n", first, first + PIECE_BYTES) + 1):
        records.add(path, view[first:stop], begin + first)
        first = stop
    records.add(path, view[first:end], begin + first)


def _long_line(file: RangeFile, head: bytes, position: int) -> bytes | None:
    """Read the rest of a line whose beginning is known. Return the line; None if it is too long."""
    parts = [head]
    size = len(head)
    while size <= MAX_LINE_BYTES:
        more = file.read(position, position + LONG_LINE_STEP)
        feed = more.find(b"\n")
        parts.append(more if feed < 0 else more[: feed + 1])
        size += len(parts[-1])
        position += len(more)
        if feed >= 0 or len(more) < LONG_LINE_STEP:
            return b"".join(parts) if size <= MAX_LINE_BYTES else None
    return None


def add_stream(records: Records, path: str, pieces: Iterable[bytes], block_bytes: int) -> Iterator[None]:
    """The lines of a stream of bytes. Stops each time that there are enough lines for a batch."""
    buffer = _LineBuffer()
    records.account.read[path] += 0
    if records.choice.is_full:
        return
    try:
        for piece in pieces:
            buffer.add(piece)
            if records.size + buffer.size >= block_bytes:
                offset, lines = buffer.take_lines()
                if lines:
                    records.add(path, lines, offset)
                elif buffer.size > MAX_LINE_BYTES:
                    records.add_long(path, *buffer.skip_line(TOO_LONG.format(MAX_LINE_BYTES)))
                if records.size >= block_bytes:
                    yield
                if records.choice.is_full:
                    return
    except Damaged as damage:
        offset, lines = buffer.take_lines()
        if lines:
            records.add(path, lines, offset)
        records.add_rest(path, buffer.offset, str(damage), buffer.rest())
        return
    if buffer.size:
        records.add(path, buffer.rest(), buffer.offset)


class _LineBuffer:
    """The bytes of a stream since the last line that was taken."""

    def __init__(self) -> None:
        self.offset = 0
        self.size = 0
        self._parts: list[bytes] = []
        self._lines_until = 0
        """How many of the parts there are up to and including the last that holds a line feed."""
        self._skipping = False

    def add(self, piece: bytes) -> None:
        if self._skipping:
            feed = piece.find(b"\n")
            self.offset += len(piece) if feed < 0 else feed + 1
            if feed < 0:
                return
            self._skipping = False
            piece = piece[feed + 1 :]
        self._parts.append(piece)
        self.size += len(piece)
        if b"\n" in piece:
            self._lines_until = len(self._parts)

    def take_lines(self) -> tuple[int, bytes]:
        """All whole lines, and where they begin."""
        if not self._lines_until:
            return self.offset, b""
        last = self._parts[self._lines_until - 1]
        feed = last.rfind(b"\n") + 1
        lines = b"".join([*self._parts[: self._lines_until - 1], last[:feed]])
        begin = self.offset
        self._parts = [last[feed:], *self._parts[self._lines_until :]]
        self._lines_until = 0
        self.offset += len(lines)
        self.size -= len(lines)
        return begin, lines

    def skip_line(self, reason: str) -> tuple[int, str, bytes]:
        """Forget the line that was begun, and all that will come of it."""
        begin, head = self.offset, self._parts[0]
        self.offset += self.size
        self.size = 0
        self._parts = []
        self._skipping = True
        return begin, reason, head

    def rest(self) -> bytes:
        return b"".join(self._parts)
