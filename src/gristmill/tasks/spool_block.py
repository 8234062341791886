"""A batch of documents that was stored at a barrier."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from gristmill.tasks.task import Task


@dataclass
class SpoolBlock(Task[str]):
    """The input of one task after a barrier: the name of a part. Its id is its number among all parts."""

    data: str = ""
    files: list[str] = field(default_factory=list)
    """The source files that documents of the part come from."""
    named: ClassVar[bool] = True
