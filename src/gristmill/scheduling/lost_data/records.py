"""What is known of data that can be lost, and of what it was made from."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gristmill.scheduling.state import Unit


@dataclass(slots=True, eq=False)
class DataRec:
    """The data of one task that can be lost, or from which such data was made."""

    data: int
    """Its id now: data that is made again has a new one."""
    task: int
    """The task that runs on the whole of it."""
    step: int
    """The step that takes it."""
    losable: bool
    parent: DataRec | None = None
    """What it was made from by the step before; None: it cannot be made again."""
    start: int = 0
    stop: int = 0
    """The slice of the parent's items that it was made from; stop 0: of the whole."""
    position: int = 0
    """Its place among all outputs of that."""
    chunk: int = 0
    """Chunks that were delivered before the one that it was in."""
    live: bool = True
    """Its task is not done."""
    there: bool = True
    """The data exists, as far as is known."""
    released: bool = False
    coming: bool = False
    """It is being made again."""
    fetched: bool = False
    """It is made again only because something was made from it."""
    cancelled: bool = False
    hopeless: str = ""
    """Why it cannot be made again, if that has been found out."""
    losses: int = 0
    bytes: int = 0
    """Bytes that are held for it beyond those of its live tasks."""
    children: int = 0
    """Pieces that were made from it."""
    stalled: list[Unit] = field(default_factory=list)
    """Units that wait for it."""
    rebuilds: list[Unit] = field(default_factory=list)
    """Units that make something of it again."""


@dataclass(slots=True, eq=False)
class Rebuild:
    """What a unit that makes lost data again is for."""

    parent: DataRec
    start: int
    stop: int
    wanted: dict[int, DataRec] = field(default_factory=dict)
    """By position, what has not been delivered yet."""
    asked: list[int] = field(default_factory=list)
    """Positions that its worker was told and has not delivered, ascending."""
