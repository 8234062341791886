"""Records of a file, read within a budget of bytes: the files may be large, and the run needs the machine."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from tarfile import TarError
from typing import Any

from gristmill import fast_json
from gristmill.images.shards import records_in
from gristmill.ledger.dropped import SHARD, rows_at_once
from gristmill.storage import Folder

BUDGET_BYTES = 48 << 20
"""Bytes that one request reads, after decompression."""
LONGEST_LINE = 16 << 20
"""A longer line is not parsed."""
HEAD_BYTES = 1 << 14
MOST_OF_FILE = 24 << 20
MOST_PARQUET_BYTES = 64 << 20
ROWS = 32


@dataclass(frozen=True, slots=True)
class CutLine:
    """A line that is too long to be parsed."""

    head: bytes
    limit: int


@dataclass
class Reader:
    """The budget of one request."""

    left: int = BUDGET_BYTES

    @property
    def is_spent(self) -> bool:
        return self.left <= 0


def records(reader: Reader, folder: Folder, name: str) -> Iterator[dict[str, Any] | CutLine]:
    """Yield the records of a file of JSON lines, compressed or not, or of a Parquet file, as far as the budget goes."""
    from gristmill.stages.text.io.compression import Damaged, decompressed
    from gristmill.stages.text.io.reader.files import opened

    if name.endswith((".parquet", ".pq")):
        yield from _rows(reader, folder, name)
        return
    if name.endswith(SHARD):
        yield from _images(reader, folder, name)
        return
    with opened(folder.full_path(name), folder.options) as file:
        try:
            for line in lines(_within(reader, decompressed(file))):
                yield line if isinstance(line, CutLine) else _record(line)
        except Damaged:
            return  # `gristmill verify` reports it


def _record(line: bytes) -> dict[str, Any]:
    try:
        found = fast_json.loads(line)
    except fast_json.JSONDecodeError:
        return {"text": line[:HEAD_BYTES].decode("utf-8", "backslashreplace")}
    return found if isinstance(found, dict) else {"text": str(found)[:HEAD_BYTES]}


def _within(reader: Reader, pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Yield pieces until the budget is spent, or that of one file."""
    of_file = MOST_OF_FILE
    for piece in pieces:
        yield piece
        reader.left -= len(piece)
        of_file -= len(piece)
        if reader.is_spent or of_file <= 0:
            return


def lines(pieces: Iterable[bytes], longest: int = LONGEST_LINE) -> Iterator[bytes | CutLine]:
    """Yield the lines of a stream. Of a line that is too long, or without an end, only the head is kept."""
    parts: list[bytes] = []
    size = 0
    for piece in pieces:
        *whole, rest = piece.split(b"\n")
        for line in whole:
            parts.append(line)
            size += len(line)
            found = b"".join(parts)
            parts, size, was = [], 0, size
            if was > longest:
                yield CutLine(found[:HEAD_BYTES], longest)
            elif found.strip():
                yield found
        size += len(rest)
        parts.append(rest)
        if size > longest and len(parts) > 1:
            parts = [b"".join(parts)[:HEAD_BYTES]]  # the rest of the line is only counted
    if size > longest:
        yield CutLine(b"".join(parts)[:HEAD_BYTES], longest)


def _rows(reader: Reader, folder: Folder, name: str) -> Iterator[dict[str, Any]]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    side, _, base = name.rpartition("/")
    size = folder.sizes(side).get(base, 0)
    if size > MOST_PARQUET_BYTES:
        return
    reader.left -= size
    with folder.open(name) as file:
        try:
            parquet = pq.ParquetFile(file)
            for batch in parquet.iter_batches(batch_size=rows_at_once(parquet, ROWS), use_threads=False):
                yield from batch.to_pylist()
        except (pa.ArrowInvalid, OSError):
            return


def _images(reader: Reader, folder: Folder, name: str) -> Iterator[dict[str, Any]]:
    """Yield images of a shard until the budget is spent, or that of one file."""
    with folder.open(name) as file:
        at = 0
        try:
            for record in records_in(file, LONGEST_LINE):
                yield record
                reader.left -= file.tell() - at
                at = file.tell()
                if reader.is_spent or at > MOST_OF_FILE:
                    return
        except (TarError, OSError):
            return
