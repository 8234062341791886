"""The problem that a plan solves, and the plan."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from gristmill.scheduling.placement import Capacity, Placement
from gristmill.scheduling.settings import StepSpec


@dataclass(frozen=True, slots=True)
class PlacedWorker:
    """A worker of a step, and where it is."""

    id: int
    node: int
    placement: Placement
    delay_us: int = 0
    """The rest of its setup."""


@dataclass(frozen=True, slots=True)
class StepDemand:
    """The needs of a step, and its workers."""

    step: int
    spec: StepSpec
    tasks: int
    """Tasks that remain, in millionths."""
    service_us: Mapping[int, int]
    """Worker time per task, by kind of node."""
    setup_us: int = 0
    """The time that a new worker needs before it can work."""
    workers: tuple[PlacedWorker, ...] = ()
    """Its workers, the most useful ones first."""
    most: int = 1 << 30
    """More workers than this would be idle."""
    certain: bool = True
    """The service time is measured, or known from an earlier run. A guess is used to fill free capacity, not to move
    workers."""
    blocked: bool = False
    """No input can arrive for a while, and workers that leave in the meantime can be started again at once."""


@dataclass(frozen=True, slots=True)
class Site:
    """A node, as if empty."""

    id: int
    kind: int
    capacity: Capacity
    closed: frozenset[int] = frozenset()
    """Steps that cannot start workers here yet."""


@dataclass(frozen=True, slots=True)
class SharedDemand:
    """CPU time that steps on shared workers need, in millionths of a CPU x microseconds."""

    work: int = 0
    floor: int = 0
    """CPUs that dedicated workers cannot take from shared steps."""


@dataclass(frozen=True, slots=True)
class Problem:
    """Everything that a plan depends on."""

    sites: tuple[Site, ...]
    demands: tuple[StepDemand, ...]
    shared: SharedDemand = SharedDemand()
    leave_us: int = 0
    """The time that a worker takes to stop."""
    margin: int = 30_000
    """How much earlier the run must end for workers to leave, in millionths."""
    memory_floor: int = 0
    """Memory of each node that is kept for shared steps."""


@dataclass(slots=True)
class StaffingPlan:
    """Workers to start now, workers that must leave, and workers to start once they have left."""

    counts: dict[int, int] = field(default_factory=dict)
    """Workers of each step after all starts and leaves."""
    starts: list[tuple[int, int, Placement]] = field(default_factory=list)
    """(step, node, placement) of workers for which there is capacity now."""
    later: list[tuple[int, int, Placement]] = field(default_factory=list)
    """(step, node, placement) of workers for which there is capacity once others have left."""
    leaves: list[int] = field(default_factory=list)
    """Workers that leave."""
    finish_us: int = 0
    """When the run would end with this plan, from now."""
    stay_us: int = 0
    """When it would end if no worker left."""
    finishes: dict[int, int] = field(default_factory=dict)
    """When each step would end."""
    complete: bool = True
    """Every step has a worker. If not, steps must take turns."""
