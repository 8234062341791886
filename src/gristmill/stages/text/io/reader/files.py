"""Bytes of local and remote files. Errors of a storage are raised as they are: the engine tries again."""

from __future__ import annotations

import errno
import io
import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, BinaryIO, cast

from gristmill.errors import InputChanged
from gristmill.stages.text.io import stamps
from gristmill.stages.text.io.compression import MAGIC_BYTES, by_magic, by_name
from gristmill.storage import local_path, storage_of
from gristmill.tasks import FileStamp

AHEAD_BYTES = 64 << 10
"""Read after the end of a range in the same request: its last line usually ends there."""
STREAM_BLOCK_BYTES = 4 << 20
PARTIAL_CONTENT = 206
"""The HTTP status of a server that sends the requested range."""


def _storage(path: str, options: Mapping[str, Any]) -> tuple[Any, str, bool]:
    """Return the storage of a file, its path there, and whether that is this machine: then the storage is None."""
    local = local_path(path)
    return (None, local, True) if local is not None else (*storage_of(path, options), False)


def open_regular(path: str) -> io.FileIO:
    """Open a regular file of this machine. Anything else raises `OSError`; a FIFO is not waited for."""
    file = open(path, "rb", buffering=0, opener=_without_waiting)  # noqa: SIM115  # the caller closes it
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise OSError(errno.EINVAL, "not a regular file", path)
    return file


def _without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)


class Watch:
    """Compares a file with what was planned: when it is opened and when it has been read."""

    def __init__(self, path: str, planned: FileStamp | None, storage: Any, inner: str) -> None:
        self._path, self._planned, self._storage, self._inner = path, planned, storage, inner
        self._local: io.FileIO | None = None

    def open(self) -> io.FileIO:
        """Open a file of this machine."""
        try:
            self._local = open_regular(self._inner)
        except (FileNotFoundError, NotADirectoryError):
            if self._planned is None:
                raise
            raise stamps.gone(self._path) from None
        try:
            self.check()
        except BaseException:
            self._local.close()
            raise
        return self._local

    def check(self) -> None:
        """Raise `InputChanged` if the file is no longer what was planned."""
        if self._planned is None:
            return
        if self._local is not None:
            stamps.check_stat(self._path, self._planned, os.fstat(self._local.fileno()))
        else:
            stamps.check_remote(self._path, self._planned, self._storage, self._inner)


def is_compressed(path: str, options: Mapping[str, Any]) -> bool:
    """Whether a file is compressed, by its name; here also by its first bytes, since those cost nothing."""
    if by_name(path):
        return True
    _, inner, is_local = _storage(path, options)
    if not is_local:
        return False
    try:
        with open_regular(inner) as file:
            return by_magic(file.read(MAGIC_BYTES)) is not None
    except OSError:  # reported when the file is read
        return False


@contextmanager
def opened(
    path: str, options: Mapping[str, Any], in_order: bool = False, planned: FileStamp | None = None
) -> Iterator[BinaryIO]:
    """Open a file to be read, ``in_order`` from its start to its end.

    Raises `InputChanged` if it is not as ``planned`` when it is opened, or no longer when it has been read.
    """
    storage, inner, is_local = _storage(path, options)
    watch = Watch(path, planned, storage, inner)
    # what cannot be read in parts is read as it comes
    block = 0 if not is_local and in_order and not _serves_ranges(storage, inner) else STREAM_BLOCK_BYTES
    with watch.open() if is_local else _open_remote(path, planned, storage, inner, block) as file:
        try:
            yield cast(BinaryIO, _Filled(file)) if block == 0 else file
        except Exception:
            watch.check()  # what was read may make no sense because the file has changed
            raise
        watch.check()


def _open_remote(path: str, planned: FileStamp | None, storage: Any, inner: str, block: int) -> Any:
    try:
        return storage.open(inner, "rb", block_size=block)
    except FileNotFoundError:
        if planned is None:
            raise
        raise stamps.gone(path) from None


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
    """Open a file to read parts of it. Raises `InputChanged` as `opened` does."""

    def __init__(self, path: str, options: Mapping[str, Any], planned: FileStamp | None = None) -> None:
        self._storage, self._path, is_local = _storage(path, options)
        self._planned = planned
        self._url = path
        self._watch = Watch(path, planned, self._storage, self._path)
        self._file = self._watch.open() if is_local else None

    def __enter__(self) -> RangeFile:
        return self

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        try:
            if kind is None or issubclass(kind, Exception):
                self._watch.check()
        finally:
            if self._file is not None:
                self._file.close()

    def read_all(self, start: int, stop: int, ahead: int) -> bytes:
        """Read from ``start`` to ``stop`` and up to ``ahead`` bytes more.

        Raises `InputChanged` if the file ends before ``stop``.
        """
        data = self.read(start, stop + ahead)
        if len(data) < stop - start:
            raise InputChanged(
                f"{self._url} changed after the run was planned: it ends at byte {start + len(data):,}, and was to be "
                f"read up to byte {stop:,}"
            )
        return data

    def read(self, start: int, stop: int | None) -> bytes:
        """The bytes from ``start`` up to ``stop``, or to the end; fewer if the file ends before."""
        if stop is not None and stop <= start:
            return b""
        if self._file is None:
            return self._read_remote(start, stop)
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

    def _read_remote(self, start: int, stop: int | None) -> bytes:
        try:
            if start == 0 and stop is None:
                whole: bytes = self._storage.cat_file(self._path)
                return whole
            data: bytes = self._storage.cat_file(self._path, start=start, end=stop)
        except FileNotFoundError:
            if self._planned is None:
                raise
            raise stamps.gone(self._url) from None
        if stop is not None and len(data) > stop - start:
            raise OSError(
                f"{self._path}: {stop - start} bytes were asked for and {len(data)} came: the server does not "
                "send parts of files. Read each file whole, by files_per_partition=1, or copy them first."
            )
        return data
