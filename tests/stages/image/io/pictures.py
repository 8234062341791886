"""Small pictures and shards for tests, made when they are needed."""

from __future__ import annotations

import io
import json
import random
import struct
import tarfile
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from PIL import Image

from gristmill.stages.image.io.reader import ImageReader
from gristmill.tasks import ImageBatch
from gristmill.tasks.document import ID


def picture(seed: int, kind: str = "PNG", mode: str = "RGB", size: tuple[int, int] = (9, 7)) -> bytes:
    """Random pixels in a format of Pillow."""
    rng = random.Random(seed)
    made = Image.frombytes("RGB", size, rng.randbytes(3 * size[0] * size[1]))
    sink = io.BytesIO()
    made.convert(mode).save(sink, kind)
    return sink.getvalue()


def bomb(width: int = 10_000, height: int = 10_000) -> bytes:
    """A PNG of a few bytes that states its size."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + head + chunk(b"IDAT", zlib.compress(b"\0" * 1000)) + chunk(b"IEND", b"")


def shard(members: Iterable[tuple[str, bytes]], kind: int = tarfile.GNU_FORMAT) -> bytes:
    """A tar file, as Python writes it."""
    sink = io.BytesIO()
    with tarfile.open(fileobj=sink, mode="w", format=kind) as tar:
        for name, data in members:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return sink.getvalue()


def samples(count: int, first: int = 0) -> list[tuple[str, bytes]]:
    """The members of samples with an image, a caption and metadata."""
    found = []
    for n in range(first, first + count):
        found.append((f"{n:06d}.png", picture(n)))
        found.append((f"{n:06d}.txt", f"caption {n}\nmore\n".encode()))
        found.append((f"{n:06d}.json", json.dumps({"n": n, "deep": {"half": n / 2}}).encode()))
    return found


def batches(reader: ImageReader) -> list[ImageBatch]:
    """What a reader makes, without an engine."""
    linked = reader.linked([], [])
    found: list[ImageBatch] = []
    for block in reader.source() or ():
        made = linked.process(block)
        found += [made] if isinstance(made, ImageBatch) else made
    return found


def rows(found: Iterable[ImageBatch]) -> list[dict[str, Any]]:
    return [row for batch in found for row in batch.to_pylist()]


def bad(found: Iterable[ImageBatch]) -> list[tuple[str, str]]:
    """The id and the reason of each bad record."""
    return [(f"{record.file}#{record.position}", record.reason) for batch in found for record in batch.account.bad]


def check_balance(found: Iterable[ImageBatch]) -> None:
    """Each image that was counted is there, or a bad record."""
    every = list(found)
    read = sum(batch.account.read.total() for batch in every)
    assert read == sum(batch.num_items + len(batch.account.bad) for batch in every)
    assert all(count >= 0 for batch in every for count in batch.account.read.values())


def by_id(found: Iterable[ImageBatch]) -> dict[str, dict[str, Any]]:
    """The images by their ids, without nulls: which columns a batch has depends on its other images."""
    every = rows(found)
    made = {row[ID]: {name: value for name, value in row.items() if value is not None} for row in every}
    assert len(made) == len(every), "ids are unique"
    return made


def put(folder: Path, name: str, data: bytes) -> str:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return str(path)
