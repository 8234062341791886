"""Events: facts that backends report. The scheduler alone decides what follows from them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from gristmill.scheduling.planning.problem import StaffingPlan


class Death(Enum):
    """How a worker died."""

    CRASHED = "crashed"
    KILLED = "killed from outside"
    OUT_OF_MEMORY = "ran out of memory"
    TIMED_OUT = "timed out"
    NODE_LOST = "was on a node that was lost"
    UNREACHABLE = "could not be reached"

    @property
    def is_own_fault(self) -> bool:
        return self in (Death.CRASHED, Death.OUT_OF_MEMORY, Death.TIMED_OUT)

    @property
    def is_no_fault(self) -> bool:
        """It proves nothing about what the worker was doing, not even that a suspect was tried."""
        return self in (Death.NODE_LOST, Death.UNREACHABLE)


class Output(NamedTuple):
    """A task that a unit made (or the source gave), left where it was made."""

    id: int
    bytes: int
    items: int = 1
    parent: int = -1
    divisible: bool = False
    """Can be run in slices of its items."""
    losable: bool = False
    """Its data lies where it can be lost, and is made again if it is (see `lineage`)."""


@dataclass(frozen=True, slots=True)
class NodeJoined:
    node: int
    cpu: int
    memory: int
    gpus: tuple[int, ...] = ()
    """Memory of each GPU in bytes."""
    kind: str = ""
    """Nodes of one kind, CPUs, memory and GPUs equal, are as fast as each other."""


@dataclass(frozen=True, slots=True)
class NodeLost:
    node: int


@dataclass(frozen=True, slots=True)
class NodeResized:
    """The resources of a node that the run may use have changed. Its workers stay until the balancer moves them."""

    node: int
    cpu: int
    memory: int
    gpus: tuple[int, ...] = ()
    """Memory of each GPU in bytes, in the order of `NodeJoined`. One that may not be used now is -1 or, at the end,
    omitted."""


@dataclass(frozen=True, slots=True)
class DataLost:
    """The data of these tasks is gone: ids of data (`Input.data`), each reported after the report that brought it.

    Ids that are unknown, replaced or already gone are skipped, so a loss can be reported twice.
    """

    tasks: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class NodeSetUp:
    """`setup_on_node` of a step is done on a node."""

    node: int
    step: int


@dataclass(frozen=True, slots=True)
class NodeSetupFailed:
    node: int
    step: int
    error: str


@dataclass(frozen=True, slots=True)
class SourceSized:
    """The number of source tasks is known."""

    total: int


@dataclass(frozen=True, slots=True)
class SourceGave:
    outputs: tuple[Output, ...]


@dataclass(frozen=True, slots=True)
class SourceEnded:
    pass


@dataclass(frozen=True, slots=True)
class WorkerReady:
    """A worker is up; a dedicated one has set up its step."""

    worker: int
    setup_us: int = 0


@dataclass(frozen=True, slots=True)
class StepSetUp:
    """A shared worker has set up a step on its first use of it."""

    worker: int
    step: int
    setup_us: int


@dataclass(frozen=True, slots=True)
class SetupFailed:
    """A stage's `setup` raised. A dedicated worker leaves after it; a shared one gives its units of that step back."""

    worker: int
    step: int
    error: str


@dataclass(frozen=True, slots=True)
class WorkerDied:
    worker: int
    cause: Death
    running: int | None = None
    """A task of the unit it was running, as noted by the worker itself."""
    setting_up: int | None = None
    """The step it was setting up."""
    detail: str = ""
    begun: tuple[int, ...] | None = None
    """Of a worker with several units in flight: those that it had begun, by its own note, if that can be read."""


@dataclass(frozen=True, slots=True)
class WorkerLeft:
    """A worker that was asked to stop has torn down and left."""

    worker: int


@dataclass(frozen=True, slots=True)
class UnitFinished:
    worker: int
    unit: int
    outputs: tuple[Output, ...]
    busy_us: int


@dataclass(frozen=True, slots=True)
class UnitEmitted:
    """A unit made some of its outputs and is suspended in its worker until it is resumed."""

    worker: int
    unit: int
    outputs: tuple[Output, ...]
    busy_us: int


@dataclass(frozen=True, slots=True)
class UnitFailed:
    """A stage raised."""

    worker: int
    unit: int
    error: str
    busy_us: int = 0


@dataclass(frozen=True, slots=True)
class InputsLost:
    """A worker could not load these inputs (ids of data) of its next unit; it has not begun the unit."""

    worker: int
    unit: int
    tasks: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class UnitsReturned:
    """A worker gives units back: it did not begin them because it leaves, or has cancelled them."""

    worker: int
    units: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Solved:
    """A requested plan is made."""

    number: int
    plan: StaffingPlan


@dataclass(frozen=True, slots=True)
class Tick:
    """Time passed. Needed for timeouts, recycling and the autoscale interval."""


@dataclass(frozen=True, slots=True)
class Interrupted:
    """The user wants the run to end now."""


Event = (
    NodeJoined
    | NodeLost
    | NodeResized
    | DataLost
    | NodeSetUp
    | NodeSetupFailed
    | SourceSized
    | SourceGave
    | SourceEnded
    | WorkerReady
    | StepSetUp
    | SetupFailed
    | WorkerDied
    | WorkerLeft
    | UnitFinished
    | UnitEmitted
    | UnitFailed
    | InputsLost
    | UnitsReturned
    | Solved
    | Tick
    | Interrupted
)
