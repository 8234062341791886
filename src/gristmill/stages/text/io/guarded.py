"""Files for a library that hides which errors come from reading the file."""

from __future__ import annotations

from typing import Any


class Guarded:
    """A file that remembers the error of reading it: pyarrow reports damage by the same kind of error.

    ``head`` was read of it before, and is read again.
    """

    def __init__(self, file: Any, head: bytes = b"") -> None:
        self._file = file
        self._head = head
        self.error: Exception | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def close(self) -> None:
        """Leave the file open: its owner checks it once more and closes it."""

    def read(self, size: int = -1) -> Any:
        if self._head:
            size = len(self._head) if size < 0 else size  # fewer than asked for: the caller reads again
            part, self._head = self._head[:size], self._head[size:]
            return part
        try:
            return self._file.read(size)
        except Exception as error:
            self.error = error
            raise
