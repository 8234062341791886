"""A part of a data set that is read, written and committed as one."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from gristmill.tasks.task import Task


@dataclass(frozen=True)
class FileRange:
    """A file, or a part of it."""

    path: str
    start: int = 0
    """The first byte, or the first row group of a Parquet file."""
    stop: int = -1
    """The byte, or row group, behind the last; -1: the end of the file."""


@dataclass
class FileBlock(Task[list[FileRange]]):
    """What one task reads. Its id is its number among all blocks of the input, also when others are done already."""

    data: list[FileRange] = field(default_factory=list)
    documents: int | None = None
    """How many there were when it was read before; None: it was not."""
    named: ClassVar[bool] = True

    @property
    def num_items(self) -> int:
        return len(self.data)
