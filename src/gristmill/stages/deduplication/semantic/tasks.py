"""What flows between the steps of semantic deduplication: names of what lies in the `EmbeddingStore`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from gristmill.tasks import Task


@dataclass
class EmbeddingPart(Task[str]):
    """The documents of one batch; ``data`` is the id of the task that it was."""

    data: str = ""
    rows: int = 0
    bad: dict[str, int] = field(default_factory=dict)
    """How many documents have no embedding, by reason."""
    types: dict[str, str] = field(default_factory=dict)
    """The type of each column that is kept."""

    @property
    def num_items(self) -> int:
        return self.rows


@dataclass
class ClusterRange(Task[tuple[int, int]]):
    """Clusters from the first up to, but without, the second; then the files of what was found in them."""

    data: tuple[int, int] = (0, 0)
    rows: int = 0
    files: list[str] = field(default_factory=list)
    found: dict[str, Any] = field(default_factory=dict)
    """What was counted."""

    @property
    def num_items(self) -> int:
        return self.rows
