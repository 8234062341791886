"""Compressed files as streams of bytes. Damaged data and errors of the storage are different exceptions."""

from __future__ import annotations

import bz2
import lzma
import zlib
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO

from gristmill.secrets import without_query

CHUNK_BYTES = 1 << 16
"""How much of a file is read at a time."""
PIECE_BYTES = 1 << 14
"""How much is decompressed at a time. No more than this is lost before damage."""

BY_NAME = {".gz": "gzip", ".gzip": "gzip", ".zst": "zstd", ".zstd": "zstd", ".bz2": "bz2", ".xz": "xz"}
BY_MAGIC = {b"\x1f\x8b\x08": "gzip", b"\x28\xb5\x2f\xfd": "zstd", b"BZh": "bz2", b"\xfd7zXZ\x00": "xz"}
MAGIC_BYTES = max(len(magic) for magic in BY_MAGIC)
EXTENSION = {"gzip": ".gz", "zstd": ".zst", "bz2": ".bz2", "xz": ".xz"}


class Damaged(Exception):
    """The compressed data ends too soon or is invalid. The data before it is valid."""


def by_name(path: str) -> str | None:
    """How a file is compressed, by the end of its name."""
    lowered = without_query(path).lower()
    return next((kind for end, kind in BY_NAME.items() if lowered.endswith(end)), None)


def by_magic(head: bytes) -> str | None:
    """How a file is compressed, by its first bytes."""
    return next((kind for magic, kind in BY_MAGIC.items() if head.startswith(magic)), None)


class _Gzip:
    """One gzip member, with the interface of `bz2.BZ2Decompressor`."""

    def __init__(self) -> None:
        self._stream = zlib.decompressobj(wbits=31)

    @property
    def eof(self) -> bool:
        return self._stream.eof

    @property
    def unused_data(self) -> bytes:
        return self._stream.unused_data

    @property
    def needs_input(self) -> bool:
        return not self._stream.unconsumed_tail

    def decompress(self, data: bytes, max_length: int) -> bytes:
        return self._stream.decompress(self._stream.unconsumed_tail + data, max_length)


_MAKERS: dict[str, Callable[[], Any]] = {"gzip": _Gzip, "bz2": bz2.BZ2Decompressor, "xz": lzma.LZMADecompressor}


def decompressed(file: BinaryIO) -> Iterator[bytes]:
    """The content of a file from its start, in pieces, decompressed if its first bytes are those of a compressed file.

    Raises `Damaged` after the last piece that could be decompressed, and the errors of reading the file.
    """
    head = file.read(CHUNK_BYTES)
    kind = by_magic(head)
    if kind is None:
        while head:
            yield head
            head = file.read(CHUNK_BYTES)
    elif kind == "zstd":
        yield from _zstd(head, file)
    else:
        yield from _members(_MAKERS[kind], kind, head, file)


def _members(make: Callable[[], Any], kind: str, data: bytes, file: BinaryIO) -> Iterator[bytes]:
    """Decompress a file of one stream or of several in a row."""
    magic = next(m for m, k in BY_MAGIC.items() if k == kind)
    while data:
        stream = make()
        while not stream.eof:
            try:
                # in small pieces: the data before damage is kept, and a decompression bomb does not fill the memory
                out = stream.decompress(data, PIECE_BYTES)
            except (zlib.error, lzma.LZMAError, EOFError, OSError, ValueError) as error:
                raise Damaged(f"the {kind} stream is damaged: {error}") from None
            if out:
                yield out
            data = b""
            if stream.needs_input and not stream.eof:
                data = file.read(CHUNK_BYTES)
                if not data:
                    raise Damaged(f"the {kind} stream ends before its end mark: the file is cut short")
        data = stream.unused_data.lstrip(b"\0")  # padding, as tapes and block devices need it
        while len(data) < len(magic) and (more := file.read(CHUNK_BYTES)):
            data = (data + more).lstrip(b"\0")
        if data and not data.startswith(magic):
            raise Damaged(f"the bytes after the end of the {kind} stream are not {kind}")


def _zstd(head: bytes, file: BinaryIO) -> Iterator[bytes]:
    import pyarrow as pa

    source = Guarded(file, head)
    stream = pa.CompressedInputStream(pa.PythonFile(source, mode="r"), "zstd")
    while True:
        try:
            out = stream.read(PIECE_BYTES)
        except OSError as error:
            if source.error is not None:
                raise source.error from None
            raise Damaged(f"the zstd stream is damaged: {error}") from None
        if not out:
            return
        yield out


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
