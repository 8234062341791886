"""The messages between the driver and its workers."""

from __future__ import annotations

from typing import Any, NamedTuple, get_args

from gristmill.backends.engine.codec import Codec

Place = tuple[int, int]
"""The offset and length of a payload where a worker keeps its payloads."""
Counts = list[tuple[int, ...]]
"""`StageCounts.as_tuple` of each stage of a step, since they were last reported."""
BlockEntries = dict[int, dict[str, Any]]
"""The account of documents by block, since it was last reported."""


class TaskInput(NamedTuple):
    """A task that a worker is to process."""

    task: int
    label: str
    payload: bytes | None
    """The task as bytes; None if they do not travel with the message."""
    source: Any
    """If so, the arena or object that holds them, as the backend names it."""
    offset: int
    length: int
    start: int = 0
    stop: int = 0
    """The slice of its items to process; all of them if ``stop`` is 0."""
    skip: int = 0
    """How many outputs an earlier attempt has delivered."""
    wanted: tuple[int, ...] = ()
    """To rebuild lost data: the positions of the outputs to deliver. Empty for all of them."""


class TaskOutput(NamedTuple):
    """A task that a worker made."""

    parent: int
    label: str
    items: int
    divisible: bool
    payload: bytes | None
    """The task as bytes; None if the worker keeps them, or if they are not wanted."""
    offset: int
    length: int


# To a worker --------------------------------------------------------------------------------------------------------


class RunUnit(NamedTuple):
    step: int
    unit: int
    inputs: list[TaskInput]


class ResumeUnit(NamedTuple):
    unit: int


class DropUnit(NamedTuple):
    """Forget a suspended unit."""

    unit: int


class Leave(NamedTuple):
    """Tear down and exit."""


class AddArena(NamedTuple):
    """The descriptor of an arena travels beside this message."""

    arena: int


class DropArena(NamedTuple):
    arena: int


class FreePayloads(NamedTuple):
    """Payloads in the worker's own arena that are not needed any more."""

    places: list[Place]


# From a worker ------------------------------------------------------------------------------------------------------


class Finished(NamedTuple):
    unit: int
    busy_us: int
    counts: Counts
    entries: BlockEntries
    outputs: list[TaskOutput]


class Emitted(NamedTuple):
    """Outputs of a unit that is suspended now: it has more to make."""

    unit: int
    busy_us: int
    counts: Counts
    entries: BlockEntries
    outputs: list[TaskOutput]


class Failed(NamedTuple):
    unit: int
    stage: int
    error: str
    detail: str
    busy_us: int
    counts: Counts


class Ready(NamedTuple):
    """The worker takes units now. A dedicated worker has set up its step."""

    setup_us: int


class StepReady(NamedTuple):
    """A shared worker has set up a step."""

    step: int
    setup_us: int


class StepNotReady(NamedTuple):
    step: int
    stage: int
    error: str
    detail: str


class Left(NamedTuple):
    """The worker's last message: the steps that it tore down, and the errors of their teardown."""

    steps: list[int]
    errors: list[str]


class NodeReady(NamedTuple):
    """`setup_on_node` of a step has ended. ``error`` is empty if it succeeded."""

    step: int
    error: str


class RunBroken(NamedTuple):
    """An error of a stage's code that ends the run."""

    error: str


class UnitProgress(NamedTuple):
    """How far the running unit is since its last report. Only views use it."""

    block: int
    read: int
    kept: int
    share: float


ToWorker = RunUnit | ResumeUnit | DropUnit | Leave | AddArena | DropArena | FreePayloads
FromWorker = (
    Finished | Emitted | Failed | Ready | StepReady | StepNotReady | Left | NodeReady | RunBroken | UnitProgress
)

TO_WORKER: Codec[ToWorker] = Codec(get_args(ToWorker), {RunUnit: TaskInput})
FROM_WORKER: Codec[FromWorker] = Codec(get_args(FromWorker), {Finished: TaskOutput, Emitted: TaskOutput})
