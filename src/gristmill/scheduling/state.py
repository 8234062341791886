"""What the scheduler remembers, and the one table of what may happen to a task."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from enum import IntEnum

from gristmill.scheduling.commands import Command
from gristmill.scheduling.estimates import ServiceEstimate, SizeEstimate
from gristmill.scheduling.events import Death
from gristmill.scheduling.failure_policy import DeathVerdict
from gristmill.scheduling.lost_data.records import DataRec, Rebuild
from gristmill.scheduling.placement import Capacity, Placement
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
    GIVEN_UP = 7
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
    (TaskState.QUEUED, Move.GIVEN_UP): TaskState.QUARANTINED,
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

    def count_death(self, verdict: DeathVerdict) -> None:
        """Count the death of the worker that had it."""
        self.attempts -= not verdict.is_attempt
        self.losses += verdict.is_loss
        self.kills += verdict.is_kill

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
    free: Capacity
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
    """Units that were done at the last death. If more are done at the next one, a new row begins."""


@dataclass(slots=True)
class StepQueue:
    """The tasks of a step that wait for a worker or for lost data."""

    tasks: deque[TaskRec] = field(default_factory=deque)
    """Tasks that were never part of a unit."""
    retries: deque[Unit] = field(default_factory=deque)
    suspects: deque[Unit] = field(default_factory=deque)
    size: int = 0
    """Tasks in the three queues above."""
    bytes: int = 0
    stalled: dict[int, Unit] = field(default_factory=dict)
    """Units that wait for lost data, by their keys."""
    stalled_tasks: int = 0
    rebuilds: int = 0
    """Units of this step, live as well, that make lost data again."""


@dataclass(slots=True)
class StepCounts:
    """Totals of a step since the run began."""

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
    workers_started: int = 0


@dataclass(slots=True)
class StepTimes:
    """Times of a step, summed since the run began."""

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


@dataclass(slots=True)
class SetupStats:
    """The setups of a step."""

    mean_us: int = -1
    """Mean duration of the setups so far; -1 if there was none."""
    count: int = 0
    failures: int = 0
    """Failures in a row."""
    kills: int = 0
    """Kills from outside in a row."""

    def add(self, setup_us: int) -> None:
        """Count a setup that succeeded."""
        self.count += 1
        self.mean_us = setup_us if self.count == 1 else self.mean_us + (setup_us - self.mean_us) // min(self.count, 8)
        self.failures = self.kills = 0


@dataclass(slots=True)
class StepPlan:
    """What the balancer has planned for a step."""

    service_us: int = 0
    """Service time that the last plan was made with."""
    reserved: list[tuple[int, Placement]] = field(default_factory=list)
    """(node, place) of workers that start when others have left."""
    reserved_on: int = -1
    """The evidence on which the last place was reserved."""
    next_rebalance: int = 1
    """Completions at which the next rebalance is due."""


@dataclass(slots=True)
class StepRec:
    """One step of the pipeline."""

    index: int
    spec: StepSpec
    dedicated: bool
    queue: StepQueue = field(default_factory=StepQueue)
    live: int = 0
    """Tasks that are queued, assigned, suspended or stalled here."""
    running: int = 0
    """Units assigned."""
    suspended: int = 0
    ended: bool = False
    """Nothing is left to do and nothing more can come, unless data that it made is lost."""
    has_ended: bool = False
    """Had ended once: the next step's barrier of batch mode stays open."""
    workers: dict[int, WorkerRec] = field(default_factory=dict)
    accepting: dict[int, WorkerRec] = field(default_factory=dict)
    """Dedicated workers that could take another unit."""
    hosts: int = 0
    """Shared workers that have set this step up, or are about to, and stay."""
    depth: int = 2
    """Units that may be in a worker at one time."""
    service: ServiceEstimate = field(default_factory=ServiceEstimate)
    by_kind: dict[int, ServiceEstimate] = field(default_factory=dict)
    """Service times by kind of node, where there are several kinds."""
    size: SizeEstimate = field(default_factory=SizeEstimate)
    setup: SetupStats = field(default_factory=SetupStats)
    idle_deaths: IdleDeaths = field(default_factory=IdleDeaths)
    last_recycled: int = -(1 << 60)
    plan: StepPlan = field(default_factory=StepPlan)
    counts: StepCounts = field(default_factory=StepCounts)
    times: StepTimes = field(default_factory=StepTimes)
    timeline: list[tuple[int, int]] = field(default_factory=list)
    """(time, number of workers) at each change."""


@dataclass(slots=True)
class SourceState:
    """The tasks that come from the user."""

    total: int | None = None
    taken: int = 0
    bytes: int = 0
    size: SizeEstimate = field(default_factory=SizeEstimate)
    pulling: bool = False
    """The source was asked and has not answered."""
    reserved: int = 0
    """Bytes reserved for what the source has been asked for."""
    ended: bool = False


@dataclass(slots=True)
class BudgetState:
    """Bytes held and reserved, against the limit of `SchedulerConfig.budget` (see `credit`)."""

    held: int = 0
    reserved: int = 0
    peak: int = 0
    """The most that was held at one time."""
    forced: int = 0
    """Units that ran although they did not fit the budget, because nothing else could free memory."""
    headroom: list[int] = field(default_factory=list)
    """For each step, the bytes to leave free for one unit of each later step."""
    source_headroom: int = 0

    @property
    def used(self) -> int:
        """Bytes held and reserved."""
        return self.held + self.reserved


@dataclass(slots=True)
class SharedPool:
    """The shared workers, which run any step without workers of its own."""

    workers: dict[int, WorkerRec] = field(default_factory=dict)
    idle: dict[int, WorkerRec] = field(default_factory=dict)
    partly_busy: dict[int, WorkerRec] = field(default_factory=dict)
    """Workers that have work and could take more."""
    cpu_floor: int = 0
    memory_floor: int = 0
    """CPU and memory of the largest shared step: the least that is left to shared workers on each node."""
    least_cpu: int = 0
    """CPU of the smallest shared step."""
    uniform: bool = False
    """All shared steps need the same, so what a worker holds does not change while it has work."""
    start_failures: int = 0
    """Workers in a row that died at their start."""
    idle_deaths: IdleDeaths = field(default_factory=IdleDeaths)
    available_us: int = 0
    """Time that workers which have left were ready."""
    last_recycled: int = -(1 << 60)
    timeline: list[tuple[int, int]] = field(default_factory=list)


@dataclass(slots=True)
class SuspectCounts:
    """Numbers of suspected units."""

    shared: int = 0
    """Queued units of shared steps that need a fresh worker."""
    dedicated: int = 0
    """The same of steps with workers of their own."""
    solo: int = 0
    """Queued units that must run while nothing else runs."""
    solo_running: int = 0


@dataclass(slots=True)
class LostDataState:
    """Data that can be lost, and the units that make it again (see `lost_data`)."""

    records: dict[int, DataRec] = field(default_factory=dict)
    """By id of data: what can be lost, and what that was made from."""
    rebuilds: dict[int, Unit] = field(default_factory=dict)
    """Units that make lost data again, by their keys."""
    fetched: int = 0
    """Data of tasks that are done, made again or about to be because something else was made from it."""
    deferred: dict[int, DataRec] = field(default_factory=dict)
    """Such data that waits until the budget has capacity for it, by its id."""
    losses: int = 0
    """Data lost so far."""


@dataclass(slots=True)
class BalanceState:
    """When the balancer runs, and what it has planned."""

    evidence: int = 0
    """How often something was learnt that can change a plan (docs/simulator.md lists what counts)."""
    reason: str = ""
    """Why a rebalance is due; empty if none is."""
    done_at: int = 0
    due_at: int = 0
    """When to rebalance even if nothing happens."""
    freed_nodes: list[int] = field(default_factory=list)
    """Nodes that workers have left while places there are reserved."""
    plans: int = 0
    solving: int = 0
    """Number of the plan that is being made; 0: none is."""
    problem: Problem | None = None
    """The problem that it solves."""
    problem_evidence: int = 0
    """The evidence on which that was stated."""
    taking_turns: bool = False
    """Not every step can have a worker: they share the slots in time."""
    standing: Standing = field(default_factory=Standing)
    """Moves of the balancer that stand until there is new evidence."""
    unblocked_at: int = -1
    """The evidence with which a step last got a worker because nothing was under way."""
    forced_at: int = -1
    """The evidence with which the balancer last ran because nothing was under way."""


@dataclass(slots=True)
class RunEnd:
    """How far the run has come to its end."""

    draining: bool = False
    """No new work is taken: a task failed."""
    stopping: bool = False
    """Workers leave."""
    aborted: str = ""
    finished: bool = False


@dataclass(slots=True)
class State:
    """Everything. The functions of this package work on it and append commands to ``out``."""

    config: SchedulerConfig
    steps: list[StepRec]
    tasks: dict[int, TaskRec] = field(default_factory=dict)
    slices: dict[int, SlicedTask] = field(default_factory=dict)
    """Data that is run in slices."""
    workers: dict[int, WorkerRec] = field(default_factory=dict)
    nodes: dict[int, NodeRec] = field(default_factory=dict)
    kinds: dict[tuple[object, ...], int] = field(default_factory=dict)
    """Kinds of nodes by what they are made of."""
    out: list[Command] = field(default_factory=list)
    now: int = 0
    running: int = 0
    """Units assigned."""
    next_worker: int = 0
    next_slice: int = -1
    source: SourceState = field(default_factory=SourceState)
    budget: BudgetState = field(default_factory=BudgetState)
    shared: SharedPool = field(default_factory=SharedPool)
    suspects: SuspectCounts = field(default_factory=SuspectCounts)
    balance: BalanceState = field(default_factory=BalanceState)
    lost: LostDataState = field(default_factory=LostDataState)
    ending: RunEnd = field(default_factory=RunEnd)
    decisions: list[Decision] = field(default_factory=list)
    deaths: int = 0

    def decide(self, text: str) -> None:
        self.decisions.append(Decision(self.now, text))
        if len(self.decisions) > 2000:
            del self.decisions[100:1100]
