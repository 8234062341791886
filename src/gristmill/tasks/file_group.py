"""Files that are read together."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Self

from gristmill.tasks.task import Task


@dataclass
class FileGroupTask(Task[list[str]]):
    """Paths of files that one task reads. It can be cut between files."""

    data: list[str] = field(default_factory=list)
    reader_config: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if isinstance(self.data, str | bytes) or hasattr(self.data, "__fspath__"):
            raise TypeError(f"FileGroupTask takes a list of paths, not one path: use [{self.data!r}].")

    @property
    def num_items(self) -> int:
        return len(self.data)

    def slice(self, start: int, stop: int) -> Self:
        return self._with_data(self.data[start:stop])
