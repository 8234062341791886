"""One buffer for the encoded bytes of a batch: images are read into it, and it becomes an Arrow column as it is."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from typing import TypeAlias

import pyarrow as pa

Space: TypeAlias = "Callable[[int], memoryview]"
"""Returns memory of a size, to read a value into."""


def new_space(size: int) -> memoryview:
    """Return memory of its own for each value."""
    return memoryview(bytearray(size))


class BytesColumn:
    """Values of bytes, one after the other.

    >>> column = BytesColumn()
    >>> column.space(2)[:] = b"ab"
    >>> column.append_space(2)
    >>> column.append(b"c")
    >>> column.array().to_pylist()
    [b'ab', b'c']
    """

    def __init__(self, expected: int = 0) -> None:
        """``expected`` is how many bytes are likely to come: the buffer grows if there are more."""
        self._ends = array("q", [0])
        self._expected = expected
        self._buffer = pa.py_buffer(b"")
        self._view = memoryview(b"")

    @property
    def size(self) -> int:
        """The bytes of all values."""
        return self._ends[-1]

    def space(self, size: int) -> memoryview:
        """Return memory after the last value. Its content is a value once `append_space` is called."""
        begin = self._ends[-1]
        if begin + size > len(self._view):
            grown = pa.allocate_buffer(max(begin + size, 2 * len(self._view), self._expected))
            view = memoryview(grown).cast("B")
            view[:begin] = self._view[:begin]
            self._buffer, self._view = grown, view
        return self._view[begin : begin + size]

    def append_space(self, size: int) -> None:
        """Append the first ``size`` bytes of what `space` returned last."""
        self._ends.append(self._ends[-1] + size)

    def append(self, value: bytes) -> None:
        """Append a copy of a value."""
        self.space(len(value))[:] = value
        self.append_space(len(value))

    def array(self) -> pa.Array:
        """Return the values as a column. Nothing can be appended any more."""
        data, self._view = self._buffer.slice(0, self.size), memoryview(b"")
        return pa.Array.from_buffers(pa.large_binary(), len(self._ends) - 1, [None, pa.py_buffer(self._ends), data])
