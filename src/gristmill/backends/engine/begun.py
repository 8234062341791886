"""A page of shared memory in which a worker with several units in flight notes which of them are begun.

It survives the worker, so that the units that may have killed it are known. A unit is noted from its beginning until
the report on it is sent.
"""

from __future__ import annotations

import mmap
import struct

ENTRIES = 511
"""Units that can be noted at the same time."""
BEGUN_BYTES = 8 * (1 + ENTRIES)
"""The number of entries that were ever used, or -1 if there were too many units at one time; then the entries."""
_FREE = -(1 << 62)
_NUMBER = struct.Struct("<q")
_TOO_MANY = -1


class BegunNotes:
    """The worker's side of its page."""

    def __init__(self, page: mmap.mmap, offset: int = 0) -> None:
        self._page, self._offset = page, offset
        self._free: list[int] = []
        self._used = 0
        self._write(0, 0)

    def begin(self, unit: int) -> int:
        """Note a unit. Return its entry, for `end`."""
        if self._free:
            entry = self._free.pop()
        elif self._used < ENTRIES:
            self._used += 1
            entry = self._used
        else:
            self._write(0, _TOO_MANY)
            return 0
        self._write(entry, unit)
        if entry == self._used and not self._free:
            self._write(0, self._used)
        return entry

    def end(self, entry: int) -> None:
        """Forget a unit: it was reported."""
        if entry:
            self._write(entry, _FREE)
            self._free.append(entry)

    def _write(self, entry: int, value: int) -> None:
        _NUMBER.pack_into(self._page, self._offset + entry * _NUMBER.size, value)


def read_begun(page: bytes) -> tuple[int, ...] | None:
    """Return the units that a worker has noted; None if there were too many for its page."""
    (used,) = _NUMBER.unpack_from(page)
    if used == _TOO_MANY:
        return None
    entries = struct.unpack_from(f"<{used}q", page, _NUMBER.size)
    return tuple(x for x in entries if x != _FREE)
