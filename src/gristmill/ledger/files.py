"""Compare files with their stamps in a log: by size, and by checksum."""

from __future__ import annotations

import os
import posixpath
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

from gristmill.storage import Folder, checksum

_AT_ONCE_BYTES = 1 << 20
_MOST_THREADS = 8
_AHEAD = 4
"""Files that wait for each thread."""

Item = TypeVar("Item")
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Stamp:
    """Size and checksum of a written file."""

    name: str
    size: int
    checksum: str


class FileSizes:
    """The sizes of files below a folder: read one by one on a disk, listed by folder elsewhere."""

    def __init__(self, folder: Folder) -> None:
        self._folder = folder
        self._listed: dict[str, dict[str, int]] = {}

    def get(self, name: str) -> int | None:
        """The size of a file; None if it does not exist."""
        if self._folder.is_local:
            try:
                return os.stat(self._folder.path(name)).st_size
            except (FileNotFoundError, NotADirectoryError):
                return None
        place, base = posixpath.split(name)
        if place not in self._listed:
            self._listed[place] = self._folder.sizes(place)
        return self._listed[place].get(base)


def difference(folder: Folder, sizes: FileSizes, stamp: Stamp, contents: bool) -> str:
    """Describe how a file differs from its stamp; empty if it does not.

    Without ``contents`` only its size is compared.
    """
    size = sizes.get(stamp.name)
    if size is None:
        return f"{stamp.name} is missing"
    if size != stamp.size:
        return f"{stamp.name} has {size:,} bytes, {stamp.size:,} were written"
    if not contents or not stamp.checksum:
        return ""
    try:
        found = content_checksum(folder, stamp.name)
    except OSError as error:
        return f"{stamp.name} cannot be read: {error.strerror or error}"
    return "" if found == stamp.checksum else f"{stamp.name} is damaged: its content is not what was written"


def content_checksum(folder: Folder, name: str) -> str:
    """The checksum of a file, read piece by piece."""
    found = ""
    with folder.open(name) as file:
        while piece := file.read(_AT_ONCE_BYTES):
            found = checksum(piece, found)
    return found or checksum(b"")


def stamped(folder: Folder, names: Iterable[str]) -> list[Stamp]:
    """Make files durable and return their stamps."""
    sizes = FileSizes(folder)

    def stamp(name: str) -> Stamp:
        folder.sync([name])
        return Stamp(name, sizes.get(name) or 0, content_checksum(folder, name))

    return [found for _, found in in_threads(stamp, names)]


def in_threads(call: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[tuple[Item, Result]]:
    """Yield each item with the result of the call, in order. Only a few items are taken ahead."""
    threads = min(_MOST_THREADS, os.cpu_count() or 1)
    waiting: deque[tuple[Item, Future[Any]]] = deque()
    with ThreadPoolExecutor(threads, thread_name_prefix="gristmill-check") as pool:
        try:
            for item in items:
                waiting.append((item, pool.submit(call, item)))
                if len(waiting) > threads * _AHEAD:
                    first, future = waiting.popleft()
                    yield first, future.result()
            while waiting:
                first, future = waiting.popleft()
                yield first, future.result()
        finally:
            for _, future in waiting:
                future.cancel()
