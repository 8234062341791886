"""The protocol of the driver and its workers: messages, and the shared page in which each worker notes what it does."""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Generic, NamedTuple, TypeVar, get_args

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


M = TypeVar("M", bound=tuple[Any, ...])
Plain = list[Any]
"""Encoded messages: for each one the number of its class, and then its fields as a tuple."""


class Codec(Generic[M]):
    """Encodes messages, which are `NamedTuple`s, and decodes them in another process with the same ``classes``.

    ``entries`` names the classes of messages whose last field is a tuple of `NamedTuple`s, with the class of these.
    Few objects of a frame of messages live at one time, or the garbage collector would run more often: messages are
    decoded as they are taken, and what lives on is plain tuples, whose memory Python reuses. It does not if a tuple is
    made from an iterator of unknown length, such as `map`.
    """

    def __init__(self, classes: Sequence[type[Any]], entries: Mapping[type[Any], type[Any]]) -> None:
        self._numbers = {cls: (number, cls in entries) for number, cls in enumerate(classes)}
        # `tuple.__new__` makes a `NamedTuple` of its values faster than a call of the class.
        self._make = [
            (partial(tuple.__new__, cls), partial(tuple.__new__, entries[cls]) if cls in entries else None)
            for cls in classes
        ]

    def encode(self, messages: Iterable[M]) -> Plain:
        plain: Plain = []
        numbers = self._numbers
        for message in messages:
            number, has_entries = numbers[type(message)]
            plain.append(number)
            if has_entries:
                plain.append((*message[:-1], tuple([entry[:] for entry in message[-1]])))
            else:
                plain.append(message[:])
        return plain

    def decode(self, plain: Plain) -> Iterator[M]:
        """Decode each message as it is taken."""
        parts = iter(plain)
        for number, fields in zip(parts, parts, strict=True):
            make, make_entry = self._make[number]
            if make_entry is not None:
                fields = (*fields[:-1], tuple([make_entry(entry) for entry in fields[-1]]))
            yield make(fields)


# To a worker --------------------------------------------------------------------------------------------------------


class RunUnit(NamedTuple):
    step: int
    unit: int
    inputs: tuple[TaskInput, ...]


class ResumeUnit(NamedTuple):
    unit: int


class DropUnit(NamedTuple):
    """Forget a suspended unit."""

    unit: int


class Leave(NamedTuple):
    """Tear down and exit."""


class LimitUnits(NamedTuple):
    """To a worker with several units in flight: begin none while so many are begun."""

    limit: int


class ReturnUnits(NamedTuple):
    """To a worker with several units in flight: begin no more, and give back those that wait (`Returned`)."""


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
    outputs: tuple[TaskOutput, ...]


class Emitted(NamedTuple):
    """Outputs of a unit that is suspended now: it has more to make."""

    unit: int
    busy_us: int
    counts: Counts
    entries: BlockEntries
    outputs: tuple[TaskOutput, ...]


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


class Returned(NamedTuple):
    """Units that were not begun, or were cancelled, because the worker leaves."""

    units: list[int]


class UnitProgress(NamedTuple):
    """How far the running unit is since its last report. Only views use it."""

    block: int
    read: int
    kept: int
    share: float


ToWorker = RunUnit | ResumeUnit | DropUnit | Leave | LimitUnits | ReturnUnits | AddArena | DropArena | FreePayloads
FromWorker = (
    Finished
    | Emitted
    | Failed
    | Ready
    | StepReady
    | StepNotReady
    | Left
    | NodeReady
    | RunBroken
    | Returned
    | UnitProgress
)

TO_WORKER: Codec[ToWorker] = Codec(get_args(ToWorker), {RunUnit: TaskInput})
FROM_WORKER: Codec[FromWorker] = Codec(get_args(FromWorker), {Finished: TaskOutput, Emitted: TaskOutput})


@dataclass(eq=False, kw_only=True)
class WorkerHandle:
    """Facts of the driver about a worker, from the command to start it until its end is known."""

    id: int
    step: int
    slot: int
    node: int = 0
    in_flight: int = 0
    """How many units it may have in flight when it starts; 0: it runs one at a time."""
    pid: int = 0
    """0 until its process runs."""
    ordered_ns: int = 0
    """When (`time.perf_counter_ns`) the command to start or to stop was sent."""
    stop_by: float = 0.0
    """When it must have exited (`time.monotonic`), after the command to stop."""
    left: bool = False
    """Its last message has arrived."""
    setup_failed: bool = False
    outbox: list[ToWorker] = field(default_factory=list)
    """Messages that are not sent yet."""


# The shared page ---------------------------------------------------------------------------------------------------

SLOT_BYTES = 32
"""Each worker's slot: the task that it runs, the stage, the step that it sets up, and the task whose end it has not
reported yet."""
NOTHING = -(1 << 62)
"""A value that names no task or step."""

_SLOT = struct.Struct("<qqqq")
_STAGE = struct.Struct("<q")


def mark(
    slots: mmap.mmap, slot: int, task: int = NOTHING, stage: int = 0, step: int = NOTHING, ended: int = NOTHING
) -> None:
    """Note what a worker does."""
    _SLOT.pack_into(slots, slot * SLOT_BYTES, task, stage, step, ended)


def mark_stage(slots: mmap.mmap, slot: int, stage: int) -> None:
    """Note that a worker has come to another stage of its step."""
    _STAGE.pack_into(slots, slot * SLOT_BYTES + _STAGE.size, stage)


def read_mark(slots: mmap.mmap, slot: int) -> tuple[int | None, int, int | None]:
    """Return the task, the stage and the step to set up that a worker noted last.

    The task is the one that it ran, or else the last one that it ended and did not report: a worker that cannot report
    any more, because a stage closed its descriptors for example, dies of that task.
    """
    task, stage, step, ended = _SLOT.unpack_from(slots, slot * SLOT_BYTES)
    if task == NOTHING:
        task = ended
    return None if task == NOTHING else task, stage, None if step == NOTHING else step
