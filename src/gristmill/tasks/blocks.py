"""The inputs of tasks that read: parts of files, whole files, and batches that were stored at a barrier."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

from gristmill.secrets import public_url
from gristmill.tasks.task import Task


@dataclass(frozen=True, slots=True)
class FileStamp:
    """The state of a file when a run was planned, as far as its storage reports it."""

    size: int | None = None
    marks: tuple[tuple[str, str], ...] = ()
    """Values that change with the content, by name, the most reliable first: an ETag, the time of the last change."""
    place: str = ""
    """The machine and device that ``inode`` belongs to; empty where there are no inodes."""
    inode: int = 0

    def changes(self, now: FileStamp) -> str:
        """Describe how ``now`` differs from this; empty if nothing shows that the file changed."""
        found = []
        if self.place and self.place == now.place and self.inode != now.inode:
            found.append("another file took its place")
        if self.size is not None and now.size is not None and self.size != now.size:
            found.append(f"it had {self.size:,} bytes and now has {now.size:,}")
        after = dict(now.marks)
        common = next(((name, value) for name, value in self.marks if name in after), None)
        if not found and common is not None and after[common[0]] != common[1]:
            found.append(f"its content was written again ({common[0]} was {common[1]}, now {after[common[0]]})")
        return ", ".join(found)


@dataclass(frozen=True)
class FileRange:
    """A file, or a part of it."""

    path: str
    """The path or URL without secrets: the name of the file in ids, records and messages."""
    start: int = 0
    """The first byte, or the first row group of a Parquet file."""
    stop: int = -1
    """The byte, or row group, after the last; -1: the end of the file."""
    limit: int = -1
    """How many records are taken at most; -1: all."""
    stamp: FileStamp | None = field(default=None, repr=False, compare=False)
    """The state of the file when the range was planned; None: it may change."""
    key: int = field(default=0, repr=False, compare=False)
    """Identifies the file where documents are sampled, wherever the input lies."""
    batch_bytes: int = field(default=0, repr=False, compare=False)
    """How much goes into one batch where a range becomes several; 0: the reader's default."""
    url: str = field(default="", repr=False, compare=False)
    """The URL with its secrets; empty: it has none."""

    @classmethod
    def of(cls, path: str) -> FileRange:
        """Return all of a file."""
        shown = public_url(path)
        return cls(path) if shown == path else cls(shown, url=path)

    @property
    def location(self) -> str:
        """The path or URL that opens the file."""
        return self.url or self.path


@dataclass
class FileBlock(Task[list[FileRange]]):
    """The input of one task of a reader. Its id is its number among all blocks, those that are done included."""

    data: list[FileRange] = field(default_factory=list)
    documents: int | None = None
    """How many there were when it was read before; None: it was not."""
    named: ClassVar[bool] = True

    @property
    def num_items(self) -> int:
        return len(self.data)


@dataclass
class FileGroupTask(Task[list[str]]):
    """Paths of files that one task reads. It can be cut between files."""

    data: list[str] = field(default_factory=list)
    reader_config: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if isinstance(self.data, str | bytes | os.PathLike):
            raise TypeError(f"FileGroupTask takes a list of paths, not one path: use [{self.data!r}].")

    @property
    def num_items(self) -> int:
        return len(self.data)

    def slice(self, start: int, stop: int) -> Self:
        return self._with_data(self.data[start:stop])


@dataclass
class SpoolBlock(Task[str]):
    """The input of one task after a barrier: the name of a part. Its id is its number among all parts."""

    data: str = ""
    files: list[str] = field(default_factory=list)
    """The source files that documents of the part come from."""
    named: ClassVar[bool] = True
