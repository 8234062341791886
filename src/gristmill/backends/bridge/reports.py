"""What a worker tells the clerk."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Made:
    """A task that came out of a step."""

    label: str
    items: int
    payload: bytes


@dataclass(frozen=True, slots=True)
class GivenUp:
    """A task, or the items ``start`` up to ``stop`` of it, that failed for good."""

    label: str
    start: int
    stop: int
    """0 for the whole task."""
    items: int
    stage: int
    error: str
    detail: str
    story: tuple[str, ...]
    counts: list[tuple[int, ...]]
    """Of the last attempt; empty if its worker died."""
    payload: bytes | None
    """The task, where documents are accounted for."""
    partly: bool
    """Whether a part of what it makes has gone on."""


@dataclass(frozen=True, slots=True)
class Report:
    """What came of tasks of a step since the last report on them. The tasks of one report begin and end together."""

    step: int
    labels: tuple[str, ...]
    first: int
    """How many outputs of these tasks were reported before."""
    made: tuple[tuple[str, int], ...]
    """Label and items of each new output."""
    counts: list[tuple[int, ...]]
    entries: dict[int, dict[str, Any]]
    """The account of documents by block."""
    busy_ns: int
    ended: bool
    given_up: tuple[GivenUp, ...] = ()
    lost: bool = False
    """Nothing of the (only) task got through."""
