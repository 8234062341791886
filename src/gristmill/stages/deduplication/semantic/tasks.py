"""The tasks of semantic deduplication: names of data in the `EmbeddingStore`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from gristmill.tasks import Task


@dataclass
class EmbeddingPart(Task[str]):
    """The documents of one batch; ``data`` is the id of its task."""

    data: str = ""
    rows: int = 0
    bad: dict[str, int] = field(default_factory=dict)
    """Numbers of documents without an embedding, by reason."""
    types: dict[str, str] = field(default_factory=dict)
    """The type of each kept column."""

    @property
    def num_items(self) -> int:
        return self.rows


@dataclass
class ClusterRange(Task[tuple[int, int]]):
    """Clusters from the first number up to, but not including, the second; then the files of their results."""

    data: tuple[int, int] = (0, 0)
    rows: int = 0
    files: list[str] = field(default_factory=list)
    found: dict[str, Any] = field(default_factory=dict)
    """Counts."""

    @property
    def num_items(self) -> int:
        return self.rows
