"""What the scheduler remembers, and the one table of what may happen to a task."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from enum import IntEnum

from gristmill.scheduling.commands import Command
from gristmill.scheduling.estimates import ServiceEstimate, SizeEstimate
from gristmill.scheduling.events import Death
from gristmill.scheduling.lost_data.records import Piece, Rebuild
from gristmill.scheduling.placement import Placement, Room
from gristmill.scheduling.planning.problem import Problem
from gristmill.scheduling.settings import SchedulerConfig, StepSpec
from gristmill.scheduling.snapshot import Decision
from gristmill.scheduling.standing import Standing


class TaskState(IntEnum):
    QUEUED = 0
    ASSIGNED = 1
    SUSPENDED = 2
    DONE = 3
    QUARANTINED = 4
    CANCELLED = 5


class Move(IntEnum):
    DISPATCHED = 0
    EMITTED = 1
    RESUMED = 2
    FINISHED = 3
    FAILED = 4
    LOST = 5
    SPLIT = 6
    CONVICTED = 7
    CANCELLED = 8


MOVES: dict[tuple[TaskState, Move], TaskState] = {
    (TaskState.QUEUED, Move.DISPATCHED): TaskState.ASSIGNED,
    (TaskState.ASSIGNED, Move.EMITTED): TaskState.SUSPENDED,
    (TaskState.SUSPENDED, Move.RESUMED): TaskState.ASSIGNED,
    (TaskState.ASSIGNED, Move.FINISHED): TaskState.DONE,
    (TaskState.ASSIGNED, Move.FAILED): TaskState.QUEUED,
    (TaskState.ASSIGNED, Move.LOST): TaskState.QUEUED,
    (TaskState.SUSPENDED, Move.LOST): TaskState.QUEUED,
    (TaskState.QUEUED, Move.SPLIT): TaskState.DONE,
    (TaskState.QUEUED, Move.CONVICTED): TaskState.QUARANTINED,
    (TaskState.QUEUED, Move.CANCELLED): TaskState.CANCELLED,
    (TaskState.ASSIGNED, Move.CANCELLED): TaskState.CANCELLED,
    (TaskState.SUSPENDED, Move.CANCELLED): TaskState.CANCELLED,
}


class IllegalTransition(Exception):
    """A bug: something happened to a task that cannot happen in its state. Carries the task's story."""


@dataclass(slots=True)
class TaskRec:
    id: int
    step: int
    bytes: int
    items: int
    divisible: bool
    data: int
    """The task whose data this runs on: itself, or the task it is a slice of."""
    queued_at: int
    state: TaskState = TaskState.QUEUED
    attempts: int = 0
    emitted: int = 0
    """Outputs already delivered by attempts that did not finish."""
    kills: int = 0
    losses: int = 0
    """Workers that died with it and did not say what they died of."""
    start: int = 0
    stop: int = 0
    """Slice of the data's items; stop 0 means whole."""
    story: list[str] | None = None
    """Notable events only: failures, deaths, splits."""

    @property
    def is_slice(self) -> bool:
        return self.stop > 0

    def move(self, how: Move) -> None:
        new = MOVES.get((self.state, how))
        if new is None:
            raise IllegalTransition(
                f"task {self.id} of step {self.step} is {self.state.name} and cannot be {how.name}. Its story:\n  "
                + "\n  ".join(self.story or ["nothing notable"])
            )
        self.state = new

    def note(self, now: int, text: str) -> None:
        if self.story is None:
            self.story = []
        if len(self.story) < 40:
            self.story.append(f"{now / 1e6:.3f} s: {text}")


@dataclass(slots=True)
class Unit:
    """Up to ``batch_size`` tasks of one step that run together."""

    step: int
    tasks: list[TaskRec]
    isolated: bool = False
    """Must run alone in a fresh worker: it is suspected of killing one."""
    solo: bool = False
    """Must run while nothing else does: it is suspected of using all the memory."""
    chunks: int = 0
    """How often it was suspended; a retry has to make as many chunks again before it gets on."""
    replay: int = 0
    avoid: int = -1
    """The worker where it failed last."""
    worker: int = -1
    reserved: int = 0
    bytes: int = 0
    part_us: int = 0
    """Time of the chunks that it has delivered."""
    rebuild: Rebuild | None = None
    """It makes lost data again."""
    missing: int = 0
    """Pieces of data that it waits for."""
    loose: bool = False
    """A task that was never part of a unit: when it has its data it joins its queue again."""

    @property
    def key(self) -> int:
        return self.tasks[0].id


@dataclass(slots=True)
class SlicedTask:
    """A task that is run in slices counts as one task: done if any slice was, else failed or cancelled."""

    live: int = 1
    done: int = 0
    failed: int = 0
    cancelled: int = 0


class WorkerState(IntEnum):
    STARTING = 0
    READY = 1
    DRAINING = 2
    """Takes no new work; stops when it has none."""
    STOPPING = 3


@dataclass(slots=True)
class WorkerRec:
    id: int
    node: int
    step: int | None
    placement: Placement
    started_at: int
    state: WorkerState = WorkerState.STARTING
    ready_at: int = -1
    head_since: int = 0
    """When the unit at the head began, as far as is known."""
    assigned: deque[Unit] = field(default_factory=deque)
    suspended: dict[int, Unit] = field(default_factory=dict)
    hosts: dict[int, bool] = field(default_factory=dict)
    """Steps with a `setup` in a shared worker: False while it runs, True when it is done."""
    aging: dict[int, None] = field(default_factory=dict)
    """Steps with a lifetime of their own that a shared worker has run."""
    units_run: int = 0
    cpu_held: int = 0
    memory_held: int = 0
    kill_cause: Death | None = None
    """It has been told to die: why. It gets no more work."""
    replaces: int | None = None
    being_replaced: bool = False

    @property
    def is_fresh(self) -> bool:
        return self.units_run == 0 and not self.assigned and not self.suspended

    @property
    def is_idle(self) -> bool:
        return not self.assigned

    @property
    def has_suspect(self) -> bool:
        """A suspected unit is suspended here; nothing else may run in this worker until it has ended."""
        return bool(self.suspended) and next(iter(self.suspended.values())).isolated

    @property
    def is_open(self) -> bool:
        """Takes new work, now or as soon as it is up."""
        return self.state <= WorkerState.READY and self.kill_cause is None and not self.has_suspect


@dataclass(slots=True)
class NodeRec:
    id: int
    room: Room
    """What dedicated workers leave of the node."""
    cpu: int
    memory: int
    kind: int = 0
    """Nodes of one kind are as fast as each other."""
    cpu_busy: int = 0
    shared_workers: int = 0
    shared_cpu_busy: int = 0
    shared_memory_busy: int = 0
    set_up: dict[int, bool] = field(default_factory=dict)
    """Steps with `setup_on_node`: False while it runs, True when it is done."""
    resized: bool = False
    """Its size has changed: what runs may for a while be more than it has."""


@dataclass(slots=True)
class IdleDeaths:
    """Deaths in a row of workers that had nothing to do."""

    count: int = 0
    units_done: int = 0
    """Units that had been done at the last one: one more, and the row is broken."""


@dataclass(slots=True)
class StepRec:
    index: int
    spec: StepSpec
    dedicated: bool
    queue: deque[TaskRec] = field(default_factory=deque)
    retries: deque[Unit] = field(default_factory=deque)
    suspects: deque[Unit] = field(default_factory=deque)
    stalled: dict[int, Unit] = field(default_factory=dict)
    """Units that wait for lost data, by their keys."""
    stalled_tasks: int = 0
    rebuilds: int = 0
    """Units here, live as well, that make lost data again."""
    live: int = 0
    """Tasks that are queued, assigned, suspended or stalled here."""
    queued: int = 0
    queued_bytes: int = 0
    running: int = 0
    """Units assigned."""
    suspended: int = 0
    ended: bool = False
    """Nothing is left to do and nothing more can come, unless data that it made is lost."""
    has_ended: bool = False
    """Had ended once: the barrier of batch mode behind it stays open."""
    workers: dict[int, WorkerRec] = field(default_factory=dict)
    hungry: dict[int, WorkerRec] = field(default_factory=dict)
    """Dedicated workers that could take another unit."""
    service: ServiceEstimate = field(default_factory=ServiceEstimate)
    size: SizeEstimate = field(default_factory=SizeEstimate)
    by_kind: dict[int, ServiceEstimate] = field(default_factory=dict)
    """Service times by kind of node, where there are several kinds."""
    setup_us: int = -1
    """Mean of the setups seen; -1 when none has been."""
    setups: int = 0
    hosts: int = 0
    """Shared workers that have set this step up, or are about to, and stay."""
    depth: int = 2
    setup_failures: int = 0
    setup_kills: int = 0
    idle_deaths: IdleDeaths = field(default_factory=IdleDeaths)
    last_recycled: int = -(1 << 60)
    planned_service_us: int = 0
    """Service time that the last plan was made with."""
    promised_on: int = -1
    """The evidence on which the last place was reserved."""
    promised: list[tuple[int, Placement]] = field(default_factory=list)
    """(node, place) of workers that have been announced and start when others have left."""
    next_look: int = 1
    """Completions at which the next look at the balance is due."""
    tasks_in: int = 0
    tasks_done: int = 0
    tasks_failed: int = 0
    tasks_cancelled: int = 0
    items_done: int = 0
    items_failed: int = 0
    outputs: int = 0
    output_bytes: int = 0
    units_done: int = 0
    chunks: int = 0
    """Parts that units delivered before their end."""
    busy_us: int = 0
    busy_squares: int = 0
    """Sum of (time of a unit)^2 / its tasks."""
    head_us: int = 0
    """Time that units were first in their worker: busy, or on their way to and fro."""
    service_max_us: int = 0
    queue_us: int = 0
    queue_max_us: int = 0
    available_us: int = 0
    """Time that workers which have left were ready."""
    workers_started: int = 0
    timeline: list[tuple[int, int]] = field(default_factory=list)


@dataclass(slots=True)
class State:
    """Everything. The functions of this package work on it and append commands to ``out``."""

    config: SchedulerConfig
    steps: list[StepRec]
    tasks: dict[int, TaskRec] = field(default_factory=dict)
    workers: dict[int, WorkerRec] = field(default_factory=dict)
    nodes: dict[int, NodeRec] = field(default_factory=dict)
    out: list[Command] = field(default_factory=list)
    now: int = 0
    next_worker: int = 0
    next_slice: int = -1
    slices: dict[int, SlicedTask] = field(default_factory=dict)
    """Data that is run in slices."""
    pieces: dict[int, Piece] = field(default_factory=dict)
    """By id of data: what can be lost, and what that was made from."""
    rebuilds: dict[int, Unit] = field(default_factory=dict)
    """Units that make lost data again, by their keys."""
    fetched: int = 0
    """Data of tasks that are done, made again or about to be because something else was made from it."""
    deferred: dict[int, Piece] = field(default_factory=dict)
    """Such data that waits until there is room for it, by its id."""
    losses: int = 0
    """Data lost so far."""
    held: int = 0
    reserved: int = 0
    peak: int = 0
    forced: int = 0
    """Units that ran although they did not fit the budget, because nothing else could free memory."""
    headroom: list[int] = field(default_factory=list)
    """For each step, the room to leave for one unit of each step behind it."""
    source_headroom: int = 0
    source_size: SizeEstimate = field(default_factory=SizeEstimate)
    idle_shared: dict[int, WorkerRec] = field(default_factory=dict)
    part_shared: dict[int, WorkerRec] = field(default_factory=dict)
    """Shared workers that have work and could take more."""
    shared: dict[int, WorkerRec] = field(default_factory=dict)
    shared_floor: int = 0
    shared_memory_floor: int = 0
    """CPU and memory of the largest shared step: the least that is left to shared workers on each node."""
    shared_least: int = 0
    """CPU of the smallest shared step."""
    shared_start_failures: int = 0
    shared_idle_deaths: IdleDeaths = field(default_factory=IdleDeaths)
    uniform: bool = False
    """All shared steps need the same, so what a worker holds does not change while it has work."""
    shared_available_us: int = 0
    shared_timeline: list[tuple[int, int]] = field(default_factory=list)
    shared_last_recycled: int = -(1 << 60)
    running: int = 0
    """Units assigned anywhere."""
    suspects: int = 0
    """Suspected units of shared steps that wait for a fresh worker."""
    dedicated_suspects: int = 0
    solos: int = 0
    """Suspects that wait until nothing else runs."""
    solo_running: int = 0
    source_total: int | None = None
    source_taken: int = 0
    source_bytes: int = 0
    source_ended: bool = False
    pulling: bool = False
    pull_reserved: int = 0
    """Bytes reserved for what the source has been asked for."""
    draining: bool = False
    stopping: bool = False
    aborted: str = ""
    finished: bool = False
    look_wanted: str = ""
    """Why the balance should be looked at again; empty when it need not be."""
    looked_at: int = 0
    freed: list[int] = field(default_factory=list)
    """Nodes that workers have left while others wait for their room."""
    solving: int = 0
    """Number of the plan that is being made; 0: none is."""
    asked_on: int = 0
    """The evidence that it is made from."""
    asked: Problem | None = None
    """What it is made from."""
    plans: int = 0
    look_at: int = 0
    """When to look at the balance again even if nothing happens."""
    kinds: dict[tuple[object, ...], int] = field(default_factory=dict)
    """Kinds of nodes by what they are made of."""
    taking_turns: bool = False
    evidence: int = 0
    """How often something was learnt that can change a plan (docs/simulator.md lists what counts)."""
    standing: Standing = field(default_factory=Standing)
    """Moves of the balancer that stand until there is new evidence."""
    way_made_at: int = -1
    """The evidence with which a step last got a worker because nothing was under way."""
    unlocked_at: int = -1
    """The evidence with which the balancer last ran because nothing was under way."""
    decisions: list[Decision] = field(default_factory=list)
    deaths: int = 0

    def decide(self, text: str) -> None:
        self.decisions.append(Decision(self.now, text))
        if len(self.decisions) > 2000:
            del self.decisions[100:1100]
