"""Files behind a library that hides whose error it was."""

from __future__ import annotations

from typing import Any


class Guarded:
    """A file that remembers what reading it raised: pyarrow tells of damage by the same kind of error.

    ``head`` is what was read of it before, and is read again.
    """

    def __init__(self, file: Any, head: bytes = b"") -> None:
        self._file = file
        self._head = head
        self.error: Exception | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def close(self) -> None:
        """Leave the file open: it is closed by its owner, who looks at it once more before."""

    def read(self, size: int = -1) -> Any:
        if self._head:
            size = len(self._head) if size < 0 else size  # fewer than are there: whoever reads asks again
            part, self._head = self._head[:size], self._head[size:]
            return part
        try:
            return self._file.read(size)
        except Exception as error:
            self.error = error
            raise
