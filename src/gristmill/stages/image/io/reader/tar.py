"""Members of a tar file, in order, without holding more than one. Damage costs no more than what is damaged.

It reads ustar, GNU and pax files. Members are found by hopping from header to header, so a file on this machine is
read only where members are wanted.
"""

from __future__ import annotations

import io
import os
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass

from gristmill.stages.image.io.reader.space import Space, new_space
from gristmill.stages.text.io.compression import Damaged

BLOCK = 512
_WINDOW = 1 << 20
_LONGEST_NAME = 1 << 16
_LONGEST_PAX = 1 << 20
_MOST_BYTES = 1 << 62
CUT = "the tar file is cut short"
GARBAGE = "not a tar header"
BAD_PAX = "damaged pax header"
_ZEROS = bytes(BLOCK)
_WITHOUT_DATA = b"123456"
"""Types of members without data: links, devices, folders and FIFOs."""
_FOLDER = b"5"


class TarStream(ABC):
    """Bytes that are read forwards."""

    position = 0
    damage = ""
    """Why the bytes end early; empty if they do not."""

    @abstractmethod
    def peek(self, size: int) -> bytes:
        """Return up to ``size`` bytes from the position, fewer only at the end."""

    @abstractmethod
    def read(self, size: int, space: Space) -> memoryview | None:
        """Return the next bytes without moving on, in memory that ``space`` returns; None if the end comes first."""

    @abstractmethod
    def skip(self, size: int) -> bool:
        """Move forwards. Return False if the end comes first; the position is the end then."""


class FileStream(TarStream):
    """A file of this machine from a position."""

    def __init__(self, file: io.FileIO, position: int = 0) -> None:
        self._file = file.fileno()
        self._size = os.fstat(self._file).st_size
        self.position = position

    def peek(self, size: int) -> bytes:
        data = os.pread(self._file, size, self.position)
        if len(data) == size or self.position + len(data) >= self._size:
            return data
        parts = [data]  # a network file system may return less than is there
        at, left = self.position + len(data), size - len(data)
        while left and (part := os.pread(self._file, left, at)):
            parts.append(part)
            at, left = at + len(part), left - len(part)
        return b"".join(parts)

    def read(self, size: int, space: Space) -> memoryview | None:
        if self.position + size > self._size:
            return None
        data = space(size)
        done = 0
        while done < size and (more := os.preadv(self._file, [data[done:]], self.position + done)):
            done += more
        return data if done == size else None

    def skip(self, size: int) -> bool:
        wanted = self.position + size
        self.position = min(wanted, max(self._size, self.position))
        return wanted <= self._size


class PieceStream(TarStream):
    """Bytes that come in pieces: of a file elsewhere, or of a compressed one."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces = pieces
        self._buffer = bytearray()

    def _fill(self, size: int) -> None:
        try:
            while len(self._buffer) < size and (piece := next(self._pieces, None)) is not None:
                self._buffer += piece
        except Damaged as error:
            self.damage = str(error)
            self._pieces = iter(())

    def peek(self, size: int) -> bytes:
        self._fill(size)
        return bytes(memoryview(self._buffer)[:size])

    def read(self, size: int, space: Space) -> memoryview | None:
        self._fill(size)
        if len(self._buffer) < size:
            return None
        data = space(size)
        data[:] = memoryview(self._buffer)[:size]
        return data

    def skip(self, size: int) -> bool:
        while size > 0:
            self._fill(min(size, _WINDOW))
            step = min(size, len(self._buffer))
            if not step:
                return False
            del self._buffer[:step]
            self.position += step
            size -= step
        return True


@dataclass(frozen=True, slots=True)
class TarMember:
    """A member. Its data can be read until the next one is asked for."""

    name: bytes
    offset: int
    """Where its first header begins."""
    data_at: int
    size: int
    is_regular: bool
    is_folder: bool = False


@dataclass(frozen=True, slots=True)
class TarDamage:
    """A part of a tar file that cannot be read."""

    offset: int
    reason: str
    name: bytes = b""
    """Of the member that is cut; empty if that is not known."""


@dataclass(frozen=True, slots=True)
class _Header:
    name: bytes
    size: int
    kind: bytes
    has_more: bool
    """Of a sparse file: whether its map continues in the next block."""


class TarReader:
    """The members of a tar file from a header on, and its damaged parts."""

    def __init__(self, stream: TarStream) -> None:
        self._stream = stream
        self._last: TarMember | None = None
        self._ended = False
        self.lacks_end = False
        """Whether the file ended, undamaged, without the zeros that show that it is complete."""
        self._has_zeros = False

    def __iter__(self) -> Iterator[TarMember | TarDamage]:
        while (found := self._next()) is not None:
            self._last = found if isinstance(found, TarMember) else None
            yield found

    def data(self, member: TarMember, space: Space = new_space) -> memoryview | None:
        """Return the data of the last member that was returned, in ``space``; None if the file ends before."""
        return self._stream.read(member.size, space)

    def _next(self) -> TarMember | TarDamage | None:
        last = self._last
        if last is not None and not self._stream.skip(last.data_at + last.size - self._stream.position):
            return self._cut(last.offset, last.name)
        self._stream.skip(-self._stream.position % BLOCK)  # padding may be missing at the end
        begin: int | None = None
        name: bytes | None = None
        pax: dict[bytes, bytes] = {}
        while not self._ended:
            at = self._stream.position
            block = self._stream.peek(BLOCK)
            header = _parsed(block)
            if header is None:
                if begin is None and (not block or block == _ZEROS[: len(block)]):
                    if not block and not self._stream.damage:
                        self.lacks_end = not self._has_zeros
                        return None
                    if block:
                        self._skip_zeros()
                        continue
                return self._no_header(at if begin is None else begin, block)
            begin = at if begin is None else begin
            self._has_zeros = False
            self._stream.skip(BLOCK)
            if header.kind not in (b"L", b"K", b"x", b"X", b"g"):
                return self._member(begin, header, name, pax)
            data = self._extra(header)
            if data is None:
                return self._cut(begin)
            if header.kind == b"L":
                name = data.rstrip(b"\0")
            elif header.kind in (b"x", b"X"):
                found = _pax(data)
                if found is None:
                    return TarDamage(begin, BAD_PAX)
                pax = found
        return None

    def _member(self, begin: int, header: _Header, name: bytes | None, pax: dict[bytes, bytes]) -> TarMember:
        more = header.kind == b"S" and header.has_more
        while more:  # the map of a sparse file continues
            more = self._stream.peek(BLOCK)[504:505] not in (b"", b"\0")
            self._stream.skip(BLOCK)
        size = int(pax[b"size"]) if b"size" in pax else header.size
        full_name = pax.get(b"path", header.name if name is None else name)
        is_folder = header.kind == _FOLDER or (header.kind == b"\0" and full_name.endswith(b"/"))
        is_sparse = header.kind == b"S" or any(key.startswith(b"GNU.sparse.") for key in pax)
        is_regular = header.kind in (b"0", b"\0", b"7") and not is_folder and not is_sparse
        size = 0 if header.kind in _WITHOUT_DATA else size
        return TarMember(full_name, begin, self._stream.position, size, is_regular, is_folder)

    def _extra(self, header: _Header) -> bytes | None:
        """The data of a header that is about the next one."""
        data = self._stream.peek(header.size)
        whole = self._stream.skip(header.size + -header.size % BLOCK)
        return data if whole else None

    def _cut(self, offset: int, name: bytes = b"") -> TarDamage:
        self._ended = True
        return TarDamage(offset, self._stream.damage or CUT, name)

    def _no_header(self, begin: int, block: bytes) -> TarDamage:
        """Damage where a header should be. What follows the next header that makes sense is read."""
        if len(block) < BLOCK:
            return self._cut(begin)
        self._stream.skip(BLOCK)
        while len(window := self._stream.peek(_WINDOW)) >= BLOCK:
            for at in _headers(window):
                self._stream.skip(at)
                return TarDamage(begin, GARBAGE)
            self._stream.skip(len(window) // BLOCK * BLOCK)
        self._ended = True
        return TarDamage(begin, GARBAGE)

    def _skip_zeros(self) -> None:
        self._has_zeros = True
        while window := self._stream.peek(_WINDOW):
            zeros = len(window) - len(window.lstrip(b"\0"))
            self._stream.skip(zeros // BLOCK * BLOCK if zeros < len(window) else zeros)
            if zeros < len(window):
                return


def _headers(window: bytes) -> Iterator[int]:
    """Where headers begin in a window."""
    found = window.find(b"ustar")
    while found >= 0:
        at = found - 257
        if at >= 0 and at % BLOCK == 0 and _parsed(window[at : at + BLOCK]) is not None:
            yield at
        found = window.find(b"ustar", found + 1)


def _parsed(block: bytes) -> _Header | None:
    """A header; None if the block is none."""
    if len(block) < BLOCK:
        return None
    stated = _octal(block[148:156])
    if stated is None or stated != sum(block) - sum(block[148:156]) + 256:
        return None
    kind = block[156:157]
    size = _number(block[124:136])
    if size is None or (kind in b"LK" and size > _LONGEST_NAME) or (kind in b"xXg" and size > _LONGEST_PAX):
        return None
    name = block[:100].split(b"\0", 1)[0]
    if block[257:263] == b"ustar\0" and (prefix := block[345:500].split(b"\0", 1)[0]):
        name = prefix + b"/" + name
    return _Header(name, size, kind, block[482:483] not in (b"\0", b"0"))


def _number(field: bytes) -> int | None:
    """A size: octal digits, or binary if it is large."""
    if not field[0] & 0x80:
        return _octal(field)
    size = int.from_bytes(field[1:], "big")
    return size if field[0] == 0x80 and size < _MOST_BYTES else None


def _octal(field: bytes) -> int | None:
    digits = field.split(b"\0", 1)[0].strip()
    if not digits:
        return 0
    return int(digits, 8) if digits.isdigit() and not digits.strip(b"01234567") else None


def _pax(data: bytes) -> dict[bytes, bytes] | None:
    """The records of a pax header; None if they make no sense."""
    found: dict[bytes, bytes] = {}
    at = 0
    while at < len(data) and data[at]:
        space = data.find(b" ", at, at + 20)
        digits = data[at:space] if space > 0 else b""
        stop = at + int(digits) if digits.isdigit() else at
        key, mark, value = data[space + 1 : stop - 1].partition(b"=")
        if not mark or stop <= space or stop > len(data) or data[stop - 1 : stop] != b"\n":
            return None
        found[key] = value
        at = stop
    size = found.get(b"size", b"0")
    return found if size.isdigit() and len(size) < 20 and int(size) < _MOST_BYTES else None
