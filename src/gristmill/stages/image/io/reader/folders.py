"""Image files in folders. They are planned and counted by folder: there may be millions of files."""

from __future__ import annotations

import hashlib
import os
import posixpath
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any

from gristmill.errors import InputChanged
from gristmill.stages.image.io.reader.options import BESIDE, FILES, kind_of
from gristmill.stages.text.io.listing import File
from gristmill.stages.text.io.stamps import check, check_path, gone, of_entry, of_stat
from gristmill.storage import local_path, storage_of
from gristmill.tasks import FileRange, FileStamp


class FileTable:
    """Files of one folder, sorted by name: a few dozen bytes for each."""

    def __init__(self, names: Sequence[str] = (), stamps: Iterable[FileStamp] = ()) -> None:
        self.names = list(names)
        self.sizes = array("q")
        self._times = array("q")
        self._inodes = array("Q")
        self._place = ""
        self._marks: list[tuple[tuple[str, str], ...]] = []
        """Of files elsewhere; those of this machine have times and inodes."""
        for stamp in stamps:
            self._add(stamp)

    def _add(self, stamp: FileStamp) -> None:
        self.sizes.append(-1 if stamp.size is None else stamp.size)
        if stamp.place:
            self._place = stamp.place
            self._times.append(int(stamp.marks[0][1]))
            self._inodes.append(stamp.inode)
        else:
            self._marks.append(stamp.marks)

    @classmethod
    def of(cls, files: Sequence[File]) -> FileTable:
        return cls([posixpath.basename(file.path) for file in files], (file.stamp for file in files))

    def __len__(self) -> int:
        return len(self.names)

    def stamp(self, row: int) -> FileStamp:
        size = None if self.sizes[row] < 0 else self.sizes[row]
        if self._marks:
            return FileStamp(size, self._marks[row])
        return FileStamp(size, (("mtime", str(self._times[row])),), self._place, self._inodes[row])

    def find(self, name: str) -> int:
        """The row of a name; -1 if there is none."""
        row = bisect_left(self.names, name)
        return row if row < len(self.names) and self.names[row] == name else -1

    def rows(self, rows: Sequence[int]) -> FileTable:
        """A table of some rows, in order."""
        return FileTable([self.names[row] for row in rows], (self.stamp(row) for row in rows))

    def fingerprint(self) -> bytes:
        """A value that changes with the names, sizes and contents, as far as the storage reports them."""
        digest = hashlib.blake2b(digest_size=12)
        digest.update("\0".join(self.names).encode())
        digest.update(self.sizes.tobytes())
        digest.update(self._times.tobytes())
        digest.update(repr(self._marks).encode())
        return digest.digest()


@dataclass(frozen=True)
class ImageFolder:
    """The images directly in a folder, or some of them in a row, and the files beside them that are about them."""

    path: str = ""
    """Ends with a slash. Images are counted under this name."""
    shown: str = ""
    """What the names of images begin with: their path below the folder that the user named."""
    images: FileTable = field(default_factory=FileTable)
    beside: FileTable = field(default_factory=FileTable)
    first: int = 0
    """The number of the first of the images in the whole folder."""
    urls: Mapping[str, str] = field(default_factory=dict)
    """The URLs with secrets, by name, of files that have some."""

    def part(self, start: int, stop: int) -> ImageFolder:
        """The images with these numbers in the whole folder."""
        rows = range(max(start - self.first, 0), min(stop - self.first, len(self.images)))
        images = self.images.rows(rows)
        near = sorted({row for name in images.names for row in self.beside_of(name).values()})
        urls = {name: url for name, url in self.urls.items() if images.find(name) >= 0}
        return replace(self, images=images, beside=self.beside.rows(near), first=self.first + rows.start, urls=urls)

    def beside_of(self, name: str) -> dict[str, int]:
        """The rows of the files beside an image, by the ends of their names without the dot."""
        stem = posixpath.splitext(name)[0]
        found = {end[1:]: self.beside.find(stem + end) for end in BESIDE} if len(self.beside) else {}
        return {end: row for end, row in found.items() if row >= 0}

    @property
    def size(self) -> int:
        return sum(max(size, 0) for size in self.images.sizes)

    def bytes_of(self, start: int, stop: int) -> int:
        """The bytes of the images with these numbers in the whole folder."""
        return sum(max(size, 0) for size in self.images.sizes[start - self.first : stop - self.first])

    def version(self) -> str:
        digest = hashlib.blake2b(self.images.fingerprint() + self.beside.fingerprint(), digest_size=12).hexdigest()
        return f"{len(self.images)} images, {self.size} bytes, {digest}"

    def as_file(self) -> File:
        """The folder as an input of a reader."""
        return File(self.path, self.size, self.version(), self.shown or posixpath.basename(self.path.rstrip("/")))


@dataclass(frozen=True)
class FolderRange(FileRange):
    """Some images of a folder, by their numbers from ``start`` up to ``stop``."""

    folder: ImageFolder = field(default_factory=ImageFolder, repr=False, compare=False)

    def holds(self, path: str) -> bool:
        """Whether an image of this path is in it."""
        folder, slash, name = path.rpartition("/")
        row = self.folder.images.find(name) + self.folder.first
        return folder + slash == self.path and self.start <= row < self.stop

    def __reduce__(self) -> tuple[Any, ...]:
        """Only its own part of the folder goes to a worker."""
        part = self.folder.part(self.start, self.stop)
        rest = (self.limit, self.stamp, self.key, self.batch_bytes, self.url)
        return type(self), (self.path, self.start, self.stop, *rest, part)


def folders_of(files: Sequence[File], options: Mapping[str, Any], all_listed: bool) -> list[ImageFolder]:
    """The folders of some files, sorted; files are images, captions and metadata.

    Unless ``all_listed``, what is beside the images is looked for.
    """
    found = []
    for path, group in groupby(sorted(files, key=_place), lambda file: posixpath.dirname(file.path)):
        there = list(group)
        images = [file for file in there if kind_of(file.path) == FILES]
        if not images:
            continue
        near = [file for file in there if file.path.lower().endswith(BESIDE)]
        beside = FileTable.of(near) if all_listed else _beside(path, images, options)
        shown = posixpath.dirname(images[0].name)
        urls = {posixpath.basename(file.path): file.url for file in images if file.url}
        prefix = f"{shown}/" if shown else ""
        found.append(ImageFolder(path.rstrip("/") + "/", prefix, FileTable.of(images), beside, urls=urls))
    return found


def _place(file: File) -> tuple[str, str]:
    folder, _, name = file.path.rpartition("/")
    return folder, name


def _beside(folder: str, images: Sequence[File], options: Mapping[str, Any]) -> FileTable:
    """The captions and metadata beside images that were named one by one, or by a pattern."""
    wanted = {posixpath.splitext(posixpath.basename(file.path))[0] + end for file in images for end in BESIDE}
    local = local_path(folder)
    found: dict[str, FileStamp] = {}
    if local is not None:
        with os.scandir(local or "/") as entries:
            for entry in entries:
                if entry.name in wanted and entry.is_file():
                    found[entry.name] = of_stat(entry.stat())
    else:
        found = {name: stamp for name, stamp in _listed(folder, options).items() if name in wanted}
    names = sorted(found)
    return FileTable(names, (found[name] for name in names))


def folder_edges(folder: ImageFolder, stop: int, block_bytes: int, most: int) -> Iterator[tuple[int, int, int]]:
    """Yield ranges of the images up to ``stop``, each with its bytes: about ``block_bytes``, and ``most`` images."""
    start = size = 0
    for row in range(stop):
        more = max(folder.images.sizes[row], 0)
        if row > start and (size + more > block_bytes or row - start >= most):
            yield start, row, size
            start, size = row, 0
        size += more
    if stop > start:
        yield start, stop, size


def changes(folders: Sequence[ImageFolder], options: Mapping[str, Any]) -> Iterator[str]:
    """Describe the files that are no longer as they were listed."""
    for folder in folders:
        local = local_path(folder.path) is not None
        now = {} if local else _listed(folder.path, options)
        for table in (folder.images, folder.beside):
            for row, name in enumerate(table.names):
                path = folder.path + name
                try:
                    if local:
                        check_path(path, table.stamp(row), options)
                    elif now and name not in now:
                        raise gone(path)
                    elif now:
                        check(path, table.stamp(row), now[name])
                except InputChanged as error:
                    yield str(error)


def _listed(folder: str, options: Mapping[str, Any]) -> dict[str, FileStamp]:
    """The files of a folder elsewhere; empty if it cannot be listed."""
    if folder.startswith(("http://", "https://")):  # web servers list nothing
        return {}
    storage, inner = storage_of(folder, options)
    storage.invalidate_cache()
    entries = storage.ls(inner, detail=True)
    return {posixpath.basename(one["name"]): of_entry(one) for one in entries if one["type"] == "file"}
