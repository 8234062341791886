"""A run at one moment: plain numbers for views, reports and tests."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

LATENCY_BOUNDS_US = tuple(250 << power for power in range(24))
"""The upper bounds of the buckets of latencies, in microseconds: 250 us to 35 minutes, each twice the one before."""


@dataclass(frozen=True, slots=True)
class Decision:
    """Something the balancer did, with its reason in words."""

    at_us: int
    text: str


class WorkerStates(NamedTuple):
    """Workers of a step, each in one state."""

    busy: int
    idle: int
    starting: int
    draining: int


@dataclass(frozen=True, slots=True)
class StepSnapshot:
    """One step. Counts of tasks and items are totals since the run began."""

    name: str
    dedicated: bool
    """Has workers of its own; otherwise the counts of workers below are those now busy with this step."""
    busy: int
    idle: int
    starting: int
    queued: int
    queued_bytes: int
    running: int
    tasks_done: int
    items_done: int
    tasks_failed: int
    busy_us: int
    """Worker time spent on finished work."""
    service_us: int
    """Current estimate of the time for one task; 0 when unknown."""
    ended: bool
    """Nothing is left to do here and nothing more can come."""
    draining: int = 0
    """Dedicated workers that take no new work and leave when theirs is done. Those that still work are also `busy`."""
    waits_for_input: bool = False
    """Has nothing to do now, and more may come."""
    blocked_by_output: bool = False
    """Tasks wait because their output would not fit the byte budget."""
    units_done: int = 0
    latency: tuple[int, ...] = ()
    """Finished units by their time, one count for each of `LATENCY_BOUNDS_US` and one for longer ones. Not cumulative.
    Empty if it is not known."""
    latency_us: int = 0
    """The time of all finished units. Unlike in `busy_us`, time in which several ran in a worker counts for each."""
    queue_us: int = 0
    """Time that tasks have waited in the queue, summed over those that were sent to a worker."""
    retries: int = 0
    """Tasks that were queued again after an attempt failed or its worker died. Each half of a task counts."""
    bytes_out: int = 0
    """Bytes of the outputs that were passed to the next step. 0 for the last step."""
    started: int = 0
    """Dedicated workers started."""
    deaths: int = 0
    """Workers that died without being asked to leave: those of this step, and shared workers that were running it."""
    recycled: int = 0
    """Dedicated workers replaced because of their age."""
    setups: int = 0
    setup_us: int = 0
    """Setups that succeeded, and the time they took together."""
    planned: int | None = None
    """Workers that the balancer plans for this step. None for a step on shared workers, before the first plan, and
    while steps share slots in time."""
    optimum_ns: int = 0
    """The least mean time between two tasks of this step, if all workers of the current plan were always busy: the
    slowest step sets the pace. 0 while no step is measured."""

    @property
    def states(self) -> WorkerStates:
        """The workers by state, each counted once."""
        at_work = min(self.busy, self.draining)
        return WorkerStates(
            self.busy - at_work, self.idle - min(self.idle, self.draining - at_work), self.starting, self.draining
        )


@dataclass(frozen=True, slots=True)
class GpuWorker:
    """The share of a GPU that a worker holds."""

    worker: int
    step: int
    memory_bytes: int


@dataclass(frozen=True, slots=True)
class GpuSnapshot:
    """One GPU, as its driver measures it."""

    index: int
    busy_percent: int
    """The share of the last second in which something ran on it."""
    memory_bytes: int
    """Of all processes, those of others too."""
    memory_total: int
    watts: float
    workers: tuple[GpuWorker, ...]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The whole run. ``source_total`` is None while the number of source tasks is unknown."""

    now_us: int
    steps: tuple[StepSnapshot, ...]
    bottleneck: int | None
    """Index of the step that limits throughput, if one is known."""
    held_bytes: int
    reserved_bytes: int
    budget_bytes: int
    source_taken: int
    source_total: int | None
    draining: bool
    """The run takes no new work because of a failure."""
    shared_busy: int
    shared_idle: int
    shared_starting: int
    decisions: tuple[Decision, ...]
    """The latest ones, oldest first."""
    gpus: tuple[GpuSnapshot, ...] = ()
    """Those of this machine that the run uses, if their driver can be asked. The backend adds them."""
    source_bytes: int = 0
    """Bytes of the source tasks taken so far."""
    shared_started: int = 0
    """Shared workers started."""
    shared_deaths: int = 0
    """Shared workers that died while they had nothing to do."""
    shared_recycled: int = 0
    """Shared workers replaced because of their age."""
