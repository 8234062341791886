"""The scheduler's state of a run.

Fields of records change only in methods: of their record, or of `State`. Exceptions are few: what is set once when the
run is made, and what is set for every unit, where a call would cost too much (tests/scheduling/test_records.py).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from gristmill.scheduling.balance_state import BalanceState
from gristmill.scheduling.commands import Command
from gristmill.scheduling.estimates import SizeEstimate
from gristmill.scheduling.lost_data.records import DataRec
from gristmill.scheduling.records import NodeRec, SlicedTask, StepRec, TaskRec, Unit, WorkerGroup, WorkerRec
from gristmill.scheduling.settings import SchedulerConfig, StepSpec
from gristmill.scheduling.snapshot import Decision


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

    def ask(self, reserved: int) -> None:
        """Note that the source is asked for tasks, and the bytes that are reserved for them."""
        self.pulling = True
        self.reserved = reserved

    def answer(self) -> int:
        """Note that the source has answered. Return the bytes that are no longer reserved."""
        reserved, self.reserved = self.reserved, 0
        self.pulling = False
        return reserved

    def take(self, sizes: list[int], overhead: int) -> None:
        """Count tasks of these sizes."""
        self.taken += len(sizes)
        for size in sizes:
            self.bytes += size
            self.size.add(size + overhead)

    def know_total(self, total: int) -> None:
        """Note how many tasks the source has in all."""
        self.total = total

    def end(self) -> None:
        self.ended = True


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

    def hold(self, size: int) -> None:
        self.held += size
        if self.held > self.peak:
            self.peak = self.held

    def release(self, size: int) -> None:
        self.held -= size

    def reserve(self, size: int) -> None:
        """Reserve so many bytes, or give back reserved ones if below zero."""
        self.reserved += size

    def set_headroom(self, by_step: list[int], of_source: int) -> None:
        """Set the bytes to leave free, for each step and for the source."""
        self.headroom, self.source_headroom = by_step, of_source

    def force(self) -> None:
        """Count a unit that runs although it does not fit."""
        self.forced += 1


@dataclass(slots=True)
class SharedPool(WorkerGroup):
    """The shared workers, which run any step without workers of its own."""

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

    @classmethod
    def of(cls, specs: list[StepSpec]) -> SharedPool:
        """The pool for the shared steps of a run."""
        return cls(
            cpu_floor=max((spec.cpu for spec in specs), default=0),
            memory_floor=max((spec.memory for spec in specs), default=0),
            least_cpu=min((spec.cpu for spec in specs), default=0),
            uniform=len({(spec.cpu, spec.memory) for spec in specs}) <= 1,
        )

    def fail_start(self) -> int:
        """Count a worker that died at its start. Return how many did in a row."""
        self.start_failures += 1
        return self.start_failures

    def come_up(self) -> None:
        self.start_failures = 0


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

    def count_queued(self, unit: Unit, is_dedicated: bool, change: int) -> None:
        """Count a suspected unit that joins its queue (1) or leaves it (-1)."""
        if is_dedicated:
            self.dedicated += change
        else:
            self.shared += change
        if unit.solo:
            self.solo += change


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

    def count_loss(self) -> None:
        self.losses += 1

    def fetch(self, record: DataRec, fetched: bool = True) -> None:
        """Note that data is made again only because something was made from it, or that this no longer holds."""
        record.fetched = fetched
        self.fetched += 1 if fetched else -1


@dataclass(slots=True)
class RunEnd:
    """How far the run has come to its end."""

    draining: bool = False
    """No new work is taken: a task failed."""
    stopping: bool = False
    """Workers leave."""
    aborted: str = ""
    finished: bool = False

    def drain(self) -> None:
        self.draining = True

    def stop(self, reason: str = "") -> None:
        """Workers leave. If the run was aborted, ``reason`` is why."""
        self.stopping = True
        self.aborted = self.aborted or reason

    def finish(self) -> None:
        self.finished = True


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

    def new_worker_id(self) -> int:
        self.next_worker += 1
        return self.next_worker - 1

    def new_slice_id(self) -> int:
        """An id for a task that the scheduler makes itself: negative and never used twice."""
        self.next_slice -= 1
        return self.next_slice + 1

    def assign(self, w: WorkerRec, unit: Unit) -> None:
        """Let a unit occupy a worker. The caller moves its tasks on."""
        step = self.steps[unit.step]
        self.running += 1
        step.running += 1
        self.suspects.solo_running += unit.solo
        self.budget.reserved += unit.reserved
        w.assign(unit, self.now)
        spec = step.spec
        if spec.cpu > w.cpu_held or (w.step is None and spec.memory > w.memory_held):
            memory = max(spec.memory, w.memory_held) if w.step is None else 0
            w.hold(self.nodes[w.node], max(spec.cpu, w.cpu_held), memory)

    def unassign(self, w: WorkerRec, unit: Unit) -> None:
        """Free what a unit occupied in a worker, from which it was removed. The caller moves its tasks on."""
        self.running -= 1
        self.steps[unit.step].running -= 1
        self.suspects.solo_running -= unit.solo
        self.budget.reserved -= unit.reserved
        unit.reserved, unit.worker = 0, -1
        node = self.nodes.get(w.node)
        if node is None or (w.assigned and (self.shared.uniform or w.step is not None)):
            return
        specs = [self.steps[u.step].spec for u in w.assigned]
        cpu = max((spec.cpu for spec in specs), default=0)
        memory = max((spec.memory for spec in specs), default=0) if w.memory_held else 0
        if cpu != w.cpu_held or memory != w.memory_held:
            w.hold(node, cpu, memory)

    def group_of(self, w: WorkerRec) -> WorkerGroup:
        """The workers that a worker belongs to."""
        return self.shared if w.step is None else self.steps[w.step]

    def suspend(self, w: WorkerRec, unit: Unit) -> None:
        """Suspend a unit: it waits in its worker until it is resumed."""
        w.suspended[unit.key] = unit
        self.steps[unit.step].suspended += 1

    def unsuspend(self, w: WorkerRec, unit: Unit) -> None:
        del w.suspended[unit.key]
        self.steps[unit.step].suspended -= 1

    def host(self, w: WorkerRec, step: StepRec) -> None:
        """Note that a shared worker sets a step up, on its first use of it."""
        w.hosts[step.index] = False
        step.hosts += 1

    def unhost(self, steps: Iterable[int]) -> None:
        """Count a shared worker no longer as a host of these steps."""
        for index in steps:
            self.steps[index].hosts -= 1

    def count_death(self, w: WorkerRec) -> None:
        """Count the death of a worker that was not asked to leave."""
        self.deaths += 1
        group = self.steps[w.assigned[0].step] if w.step is None and w.assigned else self.group_of(w)
        group.count_death()
        self.balance.add_evidence()

    def decide(self, text: str) -> None:
        self.decisions.append(Decision(self.now, text))
        if len(self.decisions) > 2000:
            del self.decisions[100:1100]
