"""What a worker reports to the collector."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple


class PackedTask(NamedTuple):
    """A task between two steps."""

    label: str
    payload: bytes


@dataclass(frozen=True, slots=True)
class GivenUp:
    """A task, or its items ``start`` to ``stop``, that failed in all its attempts."""

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
    """The counts of the last attempt; empty if its worker died."""
    payload: bytes | None
    """The task, where documents are accounted for."""
    partly: bool
    """Whether some of its outputs were passed on already."""


@dataclass(frozen=True, slots=True)
class Report:
    """What tasks of a step did since their last report. The tasks of one report begin and end together."""

    step: int
    labels: tuple[str, ...]
    first: int
    """How many outputs of these tasks were reported before."""
    outputs: tuple[str, ...]
    """The labels of the new outputs."""
    counts: list[tuple[int, ...]]
    entries: dict[int, dict[str, Any]]
    """The account of documents by block."""
    busy_ns: int
    ended: bool
    given_up: tuple[GivenUp, ...] = ()
    lost: bool = False
    """The (only) task has no outputs, because it failed."""
