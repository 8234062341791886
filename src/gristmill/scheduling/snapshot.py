"""What a run looks like at one moment: plain numbers for views, reports and tests."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Decision:
    """Something the balancer did, with its reason in words."""

    at_us: int
    text: str


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
    """Dedicated workers that take no new work and leave when theirs is done."""
    waits_for_input: bool = False
    """Has nothing to do now, and more may come."""
    blocked_by_output: bool = False
    """Tasks wait because their output would not fit the byte budget."""


@dataclass(frozen=True, slots=True)
class GpuWorker:
    """What a worker holds of a GPU."""

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
