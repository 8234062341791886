"""Commands to the backend."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from gristmill.scheduling.planning.problem import Problem


@dataclass(frozen=True, slots=True)
class SetUpNode:
    """Run `setup_on_node` of a step on a node, once."""

    node: int
    step: int


@dataclass(frozen=True, slots=True)
class StartWorker:
    worker: int
    node: int
    step: int | None
    """None: a shared worker, which sets steps up as it meets them."""
    cpu: int
    gpus: tuple[int, ...] = ()
    gpu_share: int = 0
    in_flight: int = 0
    """Units that it may have begun at one time; 0: its step has no units in flight, and it runs one at a time."""


@dataclass(frozen=True, slots=True)
class LimitInFlight:
    """Begin no unit while so many are begun. Those that are begun continue."""

    worker: int
    limit: int


@dataclass(frozen=True, slots=True)
class ReturnWaiting:
    """Begin no more units: report those that were not begun (`UnitsReturned`). Suspended ones may be resumed."""

    worker: int


@dataclass(frozen=True, slots=True)
class StopWorker:
    """Tear down and leave. It has no work left, unless the run was interrupted."""

    worker: int
    now: bool = False
    """Interrupt what it is doing."""


@dataclass(frozen=True, slots=True)
class KillWorker:
    """It hangs: end it by force."""

    worker: int


@dataclass(frozen=True, slots=True)
class Input:
    """How to run a task that is not simply run whole and from its beginning."""

    task: int
    data: int
    """Whose data it is."""
    start: int
    stop: int
    """Slice of its items; stop 0 means whole."""
    skip: int
    """Outputs that an earlier attempt has already delivered."""
    wanted: tuple[int, ...] = ()
    """Not empty: outputs that were lost are made again. Only those at these positions (ascending, from 0, among all
    outputs of this input) are delivered, in this order and with new ids; the others are dropped and nothing is counted
    in any account. Such a unit has this one input."""


class Dispatch(NamedTuple):
    """Run these tasks of a step as one unit; the first task's id names the unit.

    Ids of tasks that the scheduler itself makes (slices, and units that make lost data again) are negative and never
    used twice; ids of data are always those that a report gave.
    """

    worker: int
    step: int
    tasks: tuple[int, ...]
    special: tuple[Input, ...] = ()
    """Empty, or one for each task."""


@dataclass(frozen=True, slots=True)
class Resume:
    """Resume a suspended unit."""

    worker: int
    unit: int


@dataclass(frozen=True, slots=True)
class Cancel:
    """Drop a suspended unit; nothing is reported back."""

    worker: int
    unit: int


class Release(NamedTuple):
    """The data with these ids is no longer needed. Each id is released once, lost or not.

    Data that can be lost (`Output.losable`) may be made again under a new id: the old id is released once the new one
    is known. What such data was made from is released only when that is no longer needed either.
    """

    tasks: tuple[int, ...]
    cancelled: bool = False
    """Not all was done with it: the run ends early."""


@dataclass(frozen=True, slots=True)
class Quarantine:
    """A task, or a slice of it, is given up. Its data may be lost."""

    task: int
    data: int
    step: int
    start: int
    stop: int
    items: int
    error: str
    story: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Pull:
    """Take up to this many tasks from the source."""

    count: int


@dataclass(frozen=True, slots=True)
class Solve:
    """Make a plan (`planning.solve`) in the background and report it with `Solved`."""

    number: int
    problem: Problem


@dataclass(frozen=True, slots=True)
class Abort:
    """The run cannot continue; it ends with this reason once the workers have left."""

    reason: str


@dataclass(frozen=True, slots=True)
class Finish:
    """All is done and all workers have left."""


Command = (
    SetUpNode
    | StartWorker
    | StopWorker
    | LimitInFlight
    | ReturnWaiting
    | KillWorker
    | Dispatch
    | Resume
    | Cancel
    | Release
    | Quarantine
    | Pull
    | Solve
    | Abort
    | Finish
)
