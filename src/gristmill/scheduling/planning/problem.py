"""What a plan depends on, and what it says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from gristmill.scheduling.placement import Capacity, Placement
from gristmill.scheduling.settings import StepSpec


@dataclass(frozen=True, slots=True)
class Hand:
    """A worker that a step has."""

    worker: int
    node: int
    placement: Placement
    delay_us: int = 0
    """Until it works: what is left of its setup."""


@dataclass(frozen=True, slots=True)
class Load:
    """One step to be staffed."""

    step: int
    spec: StepSpec
    tasks: int
    """Tasks that remain for it, in millionths."""
    service_us: Mapping[int, int]
    """Worker time per task, by kind of node."""
    setup_us: int = 0
    """What passes before a new worker works."""
    hands: tuple[Hand, ...] = ()
    """The workers it has, those that are missed most first."""
    most: int = 1 << 30
    """More workers than this would have nothing to do."""
    certain: bool = True
    """The service time is measured, or known from an earlier run. If not it is a guess: good enough to fill free room,
    no reason to move anybody."""
    blocked: bool = False
    """Nothing can come to it for a while, and workers that are let go meanwhile can be had back at once."""


@dataclass(frozen=True, slots=True)
class Site:
    """A node as if it were empty."""

    id: int
    kind: int
    room: Capacity
    closed: frozenset[int] = frozenset()
    """Steps that cannot start workers here yet."""


@dataclass(frozen=True, slots=True)
class SharedLoad:
    """What CPU steps on shared workers need: CPU time in millionths of a CPU x microseconds."""

    work: int = 0
    floor: int = 0
    """CPUs that shared steps have whatever dedicated workers take."""


@dataclass(frozen=True, slots=True)
class Problem:
    """Everything that a plan depends on."""

    sites: tuple[Site, ...]
    loads: tuple[Load, ...]
    shared: SharedLoad = SharedLoad()
    leave_us: int = 0
    """What passes until a worker that is asked to leave has left."""
    margin: int = 30_000
    """How much earlier the run must end if workers are to leave for it, in millionths."""
    memory_floor: int = 0
    """Memory of each node that has been set aside for shared steps."""


@dataclass(slots=True)
class Plan:
    """What to do: workers to start, and workers to let go so that others can be started when they have left."""

    counts: dict[int, int] = field(default_factory=dict)
    """Workers of each step once all is done."""
    starts: list[tuple[int, int, Placement]] = field(default_factory=list)
    """(step, node, placement) of workers that have room now."""
    later: list[tuple[int, int, Placement]] = field(default_factory=list)
    """(step, node, placement) of workers that have room once others have left."""
    leaves: list[int] = field(default_factory=list)
    """Workers to let go."""
    finish_us: int = 0
    """When the run would end by this plan, from now."""
    stay_us: int = 0
    """When it would end if nobody left."""
    finishes: dict[int, int] = field(default_factory=dict)
    """When each step would end."""
    complete: bool = True
    """Every step has a worker. If not, steps must take turns."""
