"""Where large payloads of a worker lie: an anonymous memory file that other processes can read.

Space of payloads that are released is used again, and beyond a limit given back to the system by punching a hole, so
an arena holds little more than what is live. Readers copy: what a stage gets is its own, writable, and stays valid for
as long as it likes.
"""

from __future__ import annotations

import ctypes
import os
import sys
import tempfile
from typing import Any

from gristmill.backends.engine.payload import MAX_BUFFERS, size_of
from gristmill.errors import out_of_space
from gristmill.lazy import np

INLINE_BYTES_ON_DISK = 1024
"""Where tasks are many and wait on disk, little of each may stay in memory."""
_PAGE = 4096
_PUNCH_HOLE, _KEEP_SIZE = 0x02, 0x01
_libc = ctypes.CDLL(None, use_errno=True)


def new_arena(on_disk: bool = False) -> int:
    """A descriptor of a new anonymous file, in memory where the system can do that."""
    if not on_disk and hasattr(os, "memfd_create"):
        return os.memfd_create("gristmill", os.MFD_CLOEXEC)
    with tempfile.TemporaryFile(prefix="gristmill-") as file:
        return os.dup(file.fileno())


class ArenaWriter:
    """Puts payloads into an arena. Space that is given back is used again up to a limit, beyond it returned at once."""

    def __init__(self, fd: int, retain: int, first: int = 0) -> None:
        """The space before ``first``, a multiple of the size of a page, is left alone."""
        self.fd = fd
        self._retain = retain
        self._free: dict[int, list[int]] = {}
        self._free_bytes = 0
        self._next = first

    def write(self, parts: list[Any]) -> tuple[int, int]:
        """Store a payload; its offset and length."""
        length = size_of(parts)
        size = _size_class(length)
        spare = self._free.get(size)
        if spare:
            offset = spare.pop()
            self._free_bytes -= size
        else:
            offset = self._next
            self._next += size
        done = 0
        try:
            for i in range(0, len(parts), MAX_BUFFERS):
                done += self._write_all(parts[i : i + MAX_BUFFERS], offset + done)
        except OSError as error:
            raise out_of_space("memory that processes share", error) or error from None
        return offset, length

    def free(self, offset: int, length: int) -> None:
        """Take the space of a payload back."""
        size = _size_class(length)
        if self._free_bytes + size <= self._retain:
            self._free.setdefault(size, []).append(offset)
            self._free_bytes += size
        else:
            punch(self.fd, offset, length)

    def _write_all(self, parts: list[Any], offset: int) -> int:
        total = size_of(parts)
        written = os.pwritev(self.fd, parts, offset)
        if written < total:
            rest = memoryview(b"".join(parts))
            while written < total:
                written += os.pwrite(self.fd, rest[written:], offset + written)
        return total


def read_arena(fd: int, offset: int, length: int) -> memoryview:
    """A private copy of a payload. Its memory is not filled with zeros first, which would hold Python's lock."""
    view: memoryview = np.empty(length, np.uint8).data
    done = 0
    while done < length:
        n = os.preadv(fd, [view[done:]], offset + done)
        if n == 0:
            raise EOFError(f"a payload of {length} bytes ends after {done}")
        done += n
    return view


def punch(fd: int, offset: int, length: int) -> None:
    """Give the memory of a payload back. Where holes cannot be punched it stays until the arena is closed."""
    if sys.platform == "linux":
        _libc.fallocate(fd, _PUNCH_HOLE | _KEEP_SIZE, ctypes.c_int64(offset), ctypes.c_int64(_size_class(length)))


def _size_class(length: int) -> int:
    """Sizes in steps of an eighth and whole pages, so that space fits again."""
    step = max(_PAGE, 1 << max(length.bit_length() - 4, 0))
    return -(-length // step) * step
