"""Records of data that can be lost, and of what it was made from."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gristmill.scheduling.records.tasks import Unit


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
    """The data that the step before made it from; None: it cannot be made again."""
    start: int = 0
    stop: int = 0
    """The slice of the parent's items that it was made from; stop 0: of the whole."""
    position: int = 0
    """Its place among all outputs of that."""
    chunk: int = 0
    """Chunks that were delivered before the one that it was in."""
    live: bool = True
    """Its task is not done."""
    available: bool = True
    """The data exists, as far as is known."""
    released: bool = False
    rebuilding: bool = False
    """It is being made again."""
    fetched: bool = False
    """It is made again only because something was made from it."""
    cancelled: bool = False
    unrecoverable: str = ""
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

    def derive(self, parent: DataRec, start: int, stop: int, position: int, chunk: int) -> None:
        """Note what it was made from: a slice of the parent, as the output at this position, after so many chunks."""
        parent.children += 1
        self.parent, self.start, self.stop, self.position, self.chunk = parent, start, stop, position, chunk

    def lose(self, most: int) -> None:
        """Count a loss. After more than ``most`` losses it is not made again."""
        self.available = False
        self.losses += 1
        if self.losses > most:
            self.unrecoverable = f"it was lost {self.losses} times"

    def stall(self, unit: Unit) -> None:
        """Let a unit wait for it."""
        self.stalled.append(unit)
        unit.count_missing(1)

    def take_stalled(self) -> list[Unit]:
        units, self.stalled = self.stalled, []
        return units

    def rebuild(self) -> None:
        self.rebuilding = True

    def arrive(self, data: int, losable: bool) -> None:
        """Note that it was made again, under a new id."""
        self.data, self.losable = data, losable
        self.available, self.released, self.rebuilding = True, False, False

    def mark_unrecoverable(self, why: str) -> None:
        self.rebuilding = False
        self.unrecoverable = why

    def hold(self, size: int) -> None:
        self.bytes += size

    def consume(self, cancelled: bool) -> None:
        """Its task has ended."""
        self.live = False
        self.cancelled = cancelled

    def release(self) -> int:
        """Let the data go. Return the bytes that are no longer held."""
        self.released = True
        self.available = False
        size, self.bytes = self.bytes, 0
        return size

    def remove_child(self) -> None:
        self.children -= 1


@dataclass(slots=True, eq=False)
class Rebuild:
    """The lost data that a unit makes again."""

    parent: DataRec
    start: int
    stop: int
    wanted: dict[int, DataRec] = field(default_factory=dict)
    """By position, what has not been delivered yet."""
    asked: list[int] = field(default_factory=list)
    """Positions that its worker was asked for and has not delivered, ascending."""

    def ask(self) -> tuple[int, ...]:
        """Ask for all that is wanted. Return the positions."""
        self.asked = sorted(self.wanted)
        return tuple(self.asked)

    @property
    def last_chunk(self) -> int:
        """Chunks before the last one with something wanted. The unit has the time of all of them."""
        return max(record.chunk for record in self.wanted.values())
