"""Bytes of files, here or elsewhere. What goes wrong with a storage is raised as it is: the engine tries again."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, BinaryIO

from gristmill.stages.text.io.compression import MAGIC_BYTES, by_magic, by_name

AHEAD_BYTES = 64 << 10
"""Read behind the end of a range at once, since its last line ends there as a rule."""
STREAM_BLOCK_BYTES = 4 << 20


def _storage(path: str, options: Mapping[str, Any]) -> tuple[Any, str, bool]:
    from fsspec.core import url_to_fs
    from fsspec.implementations.local import LocalFileSystem

    storage, inner = url_to_fs(path, **options)
    return storage, inner, isinstance(storage, LocalFileSystem)


def is_compressed(path: str, options: Mapping[str, Any]) -> bool:
    """Whether a file is compressed, by its name; here also by its first bytes, since those cost nothing."""
    if by_name(path):
        return True
    _, inner, is_local = _storage(path, options)
    if not is_local:
        return False
    try:
        with open(inner, "rb", buffering=0) as file:
            return by_magic(file.read(MAGIC_BYTES)) is not None
    except OSError:  # it says so when it is read
        return False


@contextmanager
def opened(path: str, options: Mapping[str, Any]) -> Iterator[BinaryIO]:
    """A file to be read from its start to its end."""
    storage, inner, is_local = _storage(path, options)
    more = {} if is_local else {"block_size": STREAM_BLOCK_BYTES}
    with open(inner, "rb", buffering=0) if is_local else storage.open(inner, "rb", **more) as file:
        yield file


class RangeFile:
    """A file of which parts are read."""

    def __init__(self, path: str, options: Mapping[str, Any]) -> None:
        self._storage, self._path, is_local = _storage(path, options)
        self._file = open(self._path, "rb", buffering=0) if is_local else None  # noqa: SIM115  # closed by `close`

    def __enter__(self) -> RangeFile:
        return self

    def __exit__(self, *error: object) -> None:
        if self._file is not None:
            self._file.close()

    def read(self, start: int, stop: int | None) -> bytes:
        """The bytes from ``start`` up to ``stop``, or to the end; fewer if the file ends before."""
        if stop is not None and stop <= start:
            return b""
        if self._file is None:
            data: bytes = self._storage.cat_file(self._path, start=start, end=stop)
            return data
        self._file.seek(start)
        if stop is None:
            return self._file.read() or b""
        parts = []
        while start < stop:
            part = self._file.read(stop - start)
            if not part:
                break
            parts.append(part)
            start += len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)
