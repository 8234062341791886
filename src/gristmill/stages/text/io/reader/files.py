"""Bytes of files, here or elsewhere. What goes wrong with a storage is raised as it is: the engine tries again."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, BinaryIO, cast

from gristmill.stages.text.io.compression import MAGIC_BYTES, by_magic, by_name
from gristmill.storage import is_plain

AHEAD_BYTES = 64 << 10
"""Read behind the end of a range at once, since its last line ends there as a rule."""
STREAM_BLOCK_BYTES = 4 << 20
PARTIAL_CONTENT = 206
"""What a web server answers that sends the range it was asked for."""


def _storage(path: str, options: Mapping[str, Any]) -> tuple[Any, str, bool]:
    """What a file is on, its path there, and whether that is this machine: then the first may be None."""
    if is_plain(path, options):
        return None, path, True
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
def opened(path: str, options: Mapping[str, Any], in_order: bool = False) -> Iterator[BinaryIO]:
    """A file to be read, ``in_order`` from its start to its end."""
    storage, inner, is_local = _storage(path, options)
    # what cannot be read in parts is read as it comes
    block = 0 if not is_local and in_order and not _serves_ranges(storage, inner) else STREAM_BLOCK_BYTES
    with open(inner, "rb", buffering=0) if is_local else storage.open(inner, "rb", block_size=block) as file:
        yield cast(BinaryIO, _Filled(file)) if block == 0 else file


class _Filled:
    """A stream that gives as much as is asked for, however it comes: batches must be the same on each attempt."""

    def __init__(self, file: Any) -> None:
        self._file = file

    def read(self, size: int) -> bytes:
        parts: list[bytes] = []
        while size > 0 and (part := self._file.read(size)):
            parts.append(part)
            size -= len(part)
        return b"".join(parts)


def serves_ranges(path: str, options: Mapping[str, Any]) -> bool:
    """Whether parts of a file can be read. Web servers may send all of it whatever they are asked for."""
    storage, inner, is_local = _storage(path, options)
    return is_local or _serves_ranges(storage, inner)


def _serves_ranges(storage: Any, path: str) -> bool:
    if "http" not in (storage.protocol if isinstance(storage.protocol, tuple) else (storage.protocol,)):
        return True
    headers = {**storage.kwargs.get("headers", {}), "Range": "bytes=0-0"}
    # a stream, so that no more than the head of an answer is waited for
    with storage.open(path, "rb", block_size=0, size=1, headers=headers) as answer:
        partial: bool = answer.r.status == PARTIAL_CONTENT
        return partial


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
            if start == 0 and stop is None:
                whole: bytes = self._storage.cat_file(self._path)
                return whole
            data: bytes = self._storage.cat_file(self._path, start=start, end=stop)
            if stop is not None and len(data) > stop - start:
                raise OSError(
                    f"{self._path}: {stop - start} bytes were asked for and {len(data)} came: the server does not "
                    "send parts of files. Read each file whole, by files_per_partition=1, or copy them first."
                )
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
