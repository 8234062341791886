"""Workers and nodes, and the one table of what may happen to a worker."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from enum import IntEnum

from gristmill.scheduling.events import Death
from gristmill.scheduling.placement import Capacity, Placement
from gristmill.scheduling.records.tasks import IllegalTransition, Unit


class WorkerState(IntEnum):
    STARTING = 0
    READY = 1
    DRAINING = 2
    """Takes no new work; stops when it has none."""
    STOPPING = 3
    GONE = 4


class WorkerMove(IntEnum):
    CAME_UP = 0
    DRAINED = 1
    """It was asked to leave when its work is done."""
    STOPPED = 2
    LEFT = 3
    """It left, or died."""


WORKER_MOVES: dict[tuple[WorkerState, WorkerMove], WorkerState] = {
    (WorkerState.STARTING, WorkerMove.CAME_UP): WorkerState.READY,
    (WorkerState.STARTING, WorkerMove.DRAINED): WorkerState.DRAINING,
    (WorkerState.READY, WorkerMove.DRAINED): WorkerState.DRAINING,
    (WorkerState.STARTING, WorkerMove.STOPPED): WorkerState.STOPPING,
    (WorkerState.READY, WorkerMove.STOPPED): WorkerState.STOPPING,
    (WorkerState.DRAINING, WorkerMove.STOPPED): WorkerState.STOPPING,
    (WorkerState.STARTING, WorkerMove.LEFT): WorkerState.GONE,
    (WorkerState.READY, WorkerMove.LEFT): WorkerState.GONE,
    (WorkerState.DRAINING, WorkerMove.LEFT): WorkerState.GONE,
    (WorkerState.STOPPING, WorkerMove.LEFT): WorkerState.GONE,
}


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
    """Why it is being killed. It gets no more work."""
    begun: dict[int, int] | None = None
    """If it may have several units in flight: those that it has begun and that are not suspended, by their keys, and
    since when, as far as is known (see `in_flight`). The other assigned units wait in it."""
    overdue: frozenset[int] = frozenset()
    """Units in flight that took too long, for which it is being killed."""
    replaces: int | None = None
    being_replaced: bool = False

    def move(self, how: WorkerMove) -> None:
        new = WORKER_MOVES.get((self.state, how))
        if new is None:
            raise IllegalTransition(f"worker {self.id} is {self.state.name}: {how.name} cannot happen to it")
        self.state = new

    def assign(self, unit: Unit, now: int) -> None:
        """Add a unit at the end."""
        unit.worker = self.id
        if not self.assigned:
            self.head_since = now
        self.assigned.append(unit)
        self.units_run += 1

    def take_assigned(self, step: int) -> list[Unit]:
        """Remove the units of a step."""
        taken = [unit for unit in self.assigned if unit.step == step]
        self.assigned = deque(unit for unit in self.assigned if unit.step != step)
        return taken

    def come_up(self, now: int) -> None:
        self.move(WorkerMove.CAME_UP)
        self.ready_at = now

    def start_clock(self, now: int) -> None:
        """Count the time of the unit at the head from now on."""
        self.head_since = now

    def note_begun_units(self) -> None:
        """Note which units it begins: it may have several in flight."""
        self.begun = {}

    def note_overdue(self, units: frozenset[int]) -> None:
        """Note the units for which it is about to be killed, as they took too long."""
        self.overdue = units

    def note_kill(self, cause: Death) -> None:
        self.kill_cause = cause

    def replace(self, worker: int | None) -> None:
        """Take the place of an older worker; None: of none any more."""
        self.replaces = worker

    def mark_replaced(self, being_replaced: bool) -> None:
        self.being_replaced = being_replaced

    def hold(self, node: NodeRec | None, cpu: int, memory: int) -> None:
        """Hold so many CPUs, and so much memory if it is a shared worker, while it has work."""
        if node is not None:
            node.cpu_busy += cpu - self.cpu_held
            if self.step is None:
                node.shared_cpu_busy += cpu - self.cpu_held
                node.shared_memory_busy += memory - self.memory_held
        self.cpu_held, self.memory_held = cpu, memory

    def make_fresh(self) -> None:
        """Let the worker count as one that has run no unit yet."""
        self.units_run = 0

    @property
    def is_fresh(self) -> bool:
        return self.units_run == 0 and not self.assigned and not self.suspended

    @property
    def serves_suspect(self) -> bool:
        """Whether it runs a suspected unit, alone. It may run several such units one after another."""
        return self.begun is not None and bool(self.assigned) and self.assigned[0].isolated

    @property
    def has_suspect(self) -> bool:
        """Whether a suspected unit is suspended here. Nothing else may run in this worker until that has ended."""
        return bool(self.suspended) and next(iter(self.suspended.values())).isolated

    @property
    def is_open(self) -> bool:
        """Takes new work, now or as soon as it is up."""
        return self.state <= WorkerState.READY and self.kill_cause is None and not self.has_suspect


@dataclass(slots=True)
class NodeRec:
    id: int
    free: Capacity
    """The part of the node that dedicated workers do not use."""
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

    def resize(self, cpu: int, memory: int, gpus: tuple[int, ...]) -> None:
        self.free.resize(cpu - self.cpu, memory - self.memory, gpus)
        self.cpu, self.memory, self.resized = cpu, memory, True

    def add(self, w: WorkerRec) -> None:
        """Occupy the place of a worker that starts here."""
        self.free.take(w.placement)
        self.shared_workers += w.step is None

    def remove(self, w: WorkerRec) -> None:
        """Free the place of a worker that has left."""
        self.free.give(w.placement)
        self.shared_workers -= w.step is None


@dataclass(slots=True)
class IdleDeaths:
    """Deaths in a row of workers that had nothing to do."""

    count: int = 0
    units_done: int = 0
    """Units that were done at the last death. If more are done at the next one, a new row begins."""

    def add(self, units_done: int) -> None:
        self.count = 1 if units_done != self.units_done else self.count + 1
        self.units_done = units_done


@dataclass(slots=True, kw_only=True)
class WorkerGroup:
    """Workers that do the same: those of one step, or the shared ones."""

    workers: dict[int, WorkerRec] = field(default_factory=dict)
    started: int = 0
    """Workers started so far."""
    deaths: int = 0
    """Workers that died without being asked to leave: for a step on shared workers those that were running it, for the
    shared workers those that had nothing to do."""
    recycled: int = 0
    """Workers replaced because of their age."""
    available_us: int = 0
    """Time that workers which have left were ready."""
    idle_deaths: IdleDeaths = field(default_factory=IdleDeaths)
    last_recycled: int = -(1 << 60)
    """When a worker was last replaced because of its age."""
    timeline: list[tuple[int, int]] = field(default_factory=list)
    """(time, number of workers) at each change."""

    def start(self, w: WorkerRec) -> None:
        self.workers[w.id] = w
        self.started += 1
        self.note_size(w.started_at)

    def remove(self, w: WorkerRec, now: int) -> None:
        """Remove a worker that has left."""
        del self.workers[w.id]
        self.available_us += now - w.ready_at if w.ready_at >= 0 else 0
        self.note_size(now)

    def count_death(self) -> None:
        """Count the death of a worker that was not asked to leave."""
        self.deaths += 1

    def recycle(self, now: int) -> None:
        """Count a worker that is replaced because of its age."""
        self.recycled += 1
        self.last_recycled = now

    def note_size(self, now: int) -> None:
        """Add the number of workers that stay to the timeline."""
        timeline = self.timeline
        n = sum(1 for w in self.workers.values() if w.state <= WorkerState.READY)
        if timeline and timeline[-1][0] == now:
            timeline.pop()
        if timeline and timeline[-1][1] == n:
            return
        timeline.append((now, n))
        if len(timeline) > 1000:
            del timeline[1:-1:2]
