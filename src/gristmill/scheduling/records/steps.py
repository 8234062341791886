"""Steps: their queues, counts, times and plans."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from gristmill.scheduling.estimates import ServiceEstimate, SizeEstimate
from gristmill.scheduling.latency import LatencyHistogram
from gristmill.scheduling.placement import Placement
from gristmill.scheduling.records.tasks import TaskRec, TaskState, Unit
from gristmill.scheduling.records.workers import WorkerGroup, WorkerRec
from gristmill.scheduling.settings import StepSpec


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

    def put(self, unit: Unit) -> None:
        """Queue a unit for another attempt, before tasks that were not tried yet."""
        self.size += len(unit.tasks)
        self.bytes += unit.bytes
        if unit.isolated:
            self.suspects.append(unit)
        else:
            self.retries.appendleft(unit)

    def put_first(self, t: TaskRec) -> None:
        """Queue a task that was never part of a unit, before all others."""
        self.tasks.appendleft(t)
        self.size += 1
        self.bytes += t.bytes

    def take_tasks(self, is_taken: Callable[[TaskRec], bool]) -> list[TaskRec]:
        """Remove tasks that were never part of a unit."""
        taken = [t for t in self.tasks if is_taken(t)]
        if taken:
            self.tasks = deque(t for t in self.tasks if not is_taken(t))
            self.count_out(len(taken), sum(t.bytes for t in taken))
        return taken

    def take_units(self, is_taken: Callable[[Unit], bool]) -> list[Unit]:
        """Remove units that wait for another attempt."""
        taken = []
        for queue in (self.retries, self.suspects):
            for unit in [unit for unit in queue if is_taken(unit)]:
                queue.remove(unit)
                self.count_out(len(unit.tasks), unit.bytes)
                taken.append(unit)
        return taken

    def count_out(self, tasks: int, size: int) -> None:
        """Subtract tasks that were taken out of the three queues, and their size."""
        self.size -= tasks
        self.bytes -= size

    def stall(self, unit: Unit) -> None:
        """Let a unit wait for lost data."""
        self.stalled[unit.key] = unit
        self.stalled_tasks += len(unit.tasks)

    def unstall(self, unit: Unit) -> None:
        del self.stalled[unit.key]
        self.stalled_tasks -= len(unit.tasks)


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
    retries: int = 0
    """Tasks, or halves of one, that were queued again after an attempt failed or its worker died."""

    def add_outputs(self, outputs: int, size: int, is_chunk: bool) -> None:
        """Count outputs that were delivered, with a chunk or at the end of a unit."""
        self.outputs += outputs
        self.output_bytes += size
        self.chunks += is_chunk

    def fail_items(self, items: int) -> None:
        self.items_failed += items

    def retry(self, tasks: int) -> None:
        self.retries += tasks


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
    latency: LatencyHistogram = field(default_factory=LatencyHistogram)
    """Of finished units."""

    def add_head(self, us: int, busy_us: int) -> None:
        """Add how long a unit was first in its worker, and how long it was busy in that time."""
        self.head_us += us
        self.busy_us += busy_us


@dataclass(slots=True)
class SetupStats:
    """The setups of a step."""

    mean_us: int = -1
    """Mean duration of the setups so far; -1 if there was none."""
    count: int = 0
    total_us: int = 0
    failures: int = 0
    """Failures in a row."""
    kills: int = 0
    """Kills from outside in a row."""

    def fail(self) -> None:
        self.failures += 1

    def kill(self) -> None:
        self.kills += 1

    def add(self, setup_us: int) -> None:
        """Count a setup that succeeded."""
        self.count += 1
        self.total_us += setup_us
        self.mean_us = setup_us if self.count == 1 else self.mean_us + (setup_us - self.mean_us) // min(self.count, 8)
        self.failures = self.kills = 0


@dataclass(slots=True)
class StepPlan:
    """The balancer's plan for a step."""

    service_us: int = 0
    """Service time that the last plan was made with."""
    workers: int | None = None
    """Workers that the last plan gives the step; None if there is no plan for it."""
    reserved: list[tuple[int, Placement]] = field(default_factory=list)
    """(node, place) of workers that start when others have left."""
    reserved_on: int = -1
    """The evidence on which the last place was reserved."""
    next_rebalance: int = 1
    """Completions at which the next rebalance is due."""

    def note_service(self, service_us: int) -> None:
        """Note the service time that the next plan is made with."""
        self.service_us = service_us

    def aim(self, workers: int | None) -> None:
        """Note the number of workers that a plan gives the step."""
        self.workers = workers

    def reserve(self, node: int, placement: Placement, evidence: int) -> None:
        """Reserve a place for a worker that starts when others have left."""
        self.reserved.append((node, placement))
        self.reserved_on = evidence

    def claim_rebalance(self, tasks_done: int) -> bool:
        """Return True if so many completions call for a rebalance. The next one is due at three times as many."""
        if tasks_done < self.next_rebalance:
            return False
        self.next_rebalance = max(self.next_rebalance * 3, tasks_done + 1)
        return True


@dataclass(slots=True)
class StepRec(WorkerGroup):
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
    accepting: dict[int, WorkerRec] = field(default_factory=dict)
    """Dedicated workers that could take another unit."""
    hosts: int = 0
    """Shared workers that have set this step up, or are about to, and stay."""
    depth: int = 2
    """Units that may be in a worker at one time."""
    in_flight: int = 0
    """Units that may be begun in a worker at one time: `StepSpec.in_flight`, less after workers ran out of memory."""
    service: ServiceEstimate = field(default_factory=ServiceEstimate)
    by_kind: dict[int, ServiceEstimate] = field(default_factory=dict)
    """Service times by kind of node, where there are several kinds."""
    size: SizeEstimate = field(default_factory=SizeEstimate)
    setup: SetupStats = field(default_factory=SetupStats)
    plan: StepPlan = field(default_factory=StepPlan)
    counts: StepCounts = field(default_factory=StepCounts)
    times: StepTimes = field(default_factory=StepTimes)

    @property
    def unit_us(self) -> int:
        """Estimate how long a unit takes. With several in flight, a worker finishes others in that time."""
        return self.service.service_us() * self.spec.batch_size * max(1, self.in_flight)

    def set_depth(self, depth: int) -> None:
        """Set how many units may be in a worker at one time."""
        self.depth = depth

    def halve_in_flight(self) -> None:
        self.in_flight = max(1, self.in_flight // 2)

    def receive(self, tasks: list[TaskRec], size: int) -> None:
        """Queue new tasks; ``size`` is that of all together."""
        n = len(tasks)
        self.live += n
        self.counts.tasks_in += n
        queue = self.queue
        queue.tasks.extend(tasks)
        queue.size += n
        queue.bytes += size

    def start_unit(self, unit: Unit, now: int) -> None:
        """Count a unit that leaves the queues for a worker."""
        tasks = unit.tasks
        self.queue.count_out(len(tasks), unit.bytes)
        times = self.times
        for t in tasks:
            waited = now - t.queued_at
            times.queue_us += waited
            if waited > times.queue_max_us:
                times.queue_max_us = waited

    def finish_unit(self, tasks: list[TaskRec], us: int, latency_us: int) -> None:
        """Count a finished unit. It took ``latency_us`` and cost ``us``: less, if others ran at once in its worker."""
        n = len(tasks)
        counts, times = self.counts, self.times
        counts.units_done += 1
        for t in tasks:
            counts.items_done += t.items
        times.busy_squares += us * us // n
        if us // n > times.service_max_us:
            times.service_max_us = us // n
        times.latency.add(latency_us)

    def retire(self, state: TaskState) -> None:
        """Count a whole task that has ended."""
        self.live -= 1
        counts = self.counts
        if state is TaskState.DONE:
            counts.tasks_done += 1
        elif state is TaskState.CANCELLED:
            counts.tasks_cancelled += 1
        else:
            counts.tasks_failed += 1

    def count_live(self, change: int) -> None:
        self.live += change

    def count_rebuild(self, change: int) -> None:
        """Count a unit that makes lost data again: 1 if it is added, -1 if it has ended."""
        self.live += change
        self.queue.rebuilds += change

    def end(self, is_complete: bool = True) -> None:
        """Mark the step as ended: nothing is left to do. If it is not complete, the run was stopped."""
        self.ended = True
        self.has_ended |= is_complete

    def reopen(self) -> None:
        """Mark the step as not ended: there is work again, because data that it made was lost."""
        self.ended = False
