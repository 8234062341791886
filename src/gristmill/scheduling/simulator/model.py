"""Models of a virtual cluster: steps, nodes, workers, and the data of tasks with the keys of its random numbers."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from gristmill.scheduling.commands import Input
from gristmill.scheduling.events import NodeJoined
from gristmill.scheduling.settings import UNIT
from gristmill.scheduling.simulator.draws import lognormal, mix, uniform

SECOND = 1_000_000
SOURCE_BYTES = 1000


def cpus(n: int, gpus: int = 0, node: int = 0, gpu_memory: int = 80 << 30, kind: str = "") -> NodeJoined:
    """Return a node with this many CPUs and GPUs."""
    return NodeJoined(node, n * UNIT, 1 << 34, (gpu_memory,) * gpus, kind)


@dataclass
class StepModel:
    """How a step behaves. Bad tasks are named by their source task ("7") or one item of it ("7#2")."""

    service_us: int = SECOND
    fan_out: float = 1
    """Outputs per input; a fraction is the chance of one more."""
    out_bytes: int = 1000
    setup_us: int = 0
    chunk: int = 0
    """Outputs per chunk when it is a generator; 0: not one."""
    poison: frozenset[str] = frozenset()
    """Kill the worker."""
    raises: frozenset[str] = frozenset()
    flaky: frozenset[str] = frozenset()
    """Raise on the first attempt only."""
    hangs: frozenset[str] = frozenset()
    stubborn: frozenset[str] = frozenset()
    """Never end, not even when they are cancelled. Only of steps with units in flight, like the next one."""
    blocks: frozenset[str] = frozenset()
    """Block the event loop of their worker, so that nothing in it ends."""
    failing_setups: int = 0
    """How many setups raise before one succeeds."""
    cv: float | None = None
    """Service times are lognormal with this coefficient of variation; None: uniform within 10 %."""
    overhead_us: int = 0
    """Before each unit, while the worker is not busy."""
    setup_spread: float = 0.0
    """Setups are uniform within this share of ``setup_us``."""
    changes: tuple[tuple[int, float], ...] = ()
    """(after so many tasks, the service time is multiplied by this)."""
    speeds: dict[str, float] = field(default_factory=dict)
    """By kind of node; 1 where none is given."""
    served: int = 0

    def outputs(self, key: int) -> int:
        """How many outputs the task of this key has."""
        whole = int(self.fan_out)
        part = self.fan_out - whole
        return whole + (uniform(key) < part if part else 0)

    def service(self, key: int, kind: str) -> int:
        """Microseconds that the task of this key takes now on a node of this kind."""
        factor = 0.9 + 0.2 * uniform(key) if self.cv is None else lognormal(key, self.cv)
        for after, by in self.changes:
            if self.served >= after:
                factor *= by
        return max(1, int(self.service_us * factor / self.speeds.get(kind, 1.0)))

    def setup(self, key: int) -> int:
        return int(self.setup_us * (1.0 + self.setup_spread * (2.0 * uniform(key) - 1.0)))


@dataclass(frozen=True, slots=True)
class Conditions:
    """How a virtual cluster and its source behave."""

    seed: int = 0
    items: int = 1
    """Items of each source task."""
    source_bytes: int = SOURCE_BYTES
    lag_us: int = 0
    """Reports arrive up to this much late."""
    start_us: int = 1000
    """The time that a worker takes to start, without its setup."""
    leave_us: int | None = None
    """The time that a worker takes to stop; None: as long as to start."""
    tick_us: int = SECOND


@dataclass(frozen=True, slots=True)
class Data:
    """The data of a task: its label, items of its source task, and the key for its random numbers."""

    label: str
    items: tuple[int, ...]
    key: int = field(default=0, compare=False)

    @property
    def root(self) -> str:
        return self.label.split(".")[0]

    def is_in(self, bad: frozenset[str]) -> bool:
        return bool(bad) and (self.root in bad or any(f"{self.root}#{i}" in bad for i in self.items))

    def child(self, position: int) -> Data:
        return Data(f"{self.label}.{position}", self.items, mix(self.key, position + 7))


@dataclass(slots=True)
class Job:
    """A unit in a worker."""

    key: int
    step: int
    inputs: tuple[Input, ...]
    data: tuple[Data, ...]
    produced: int = 0
    loaded: bool = False
    """Its inputs are in the worker, so they cannot be lost."""
    since: int = 0
    """When it, or its current chunk, began, if there are several in flight."""


@dataclass(frozen=True, slots=True)
class Made:
    """Tasks that a step made, or the source gave (step -1), with their ids."""

    step: int
    tasks: tuple[tuple[int, Data], ...]


@dataclass(slots=True)
class VirtualWorker:
    node: int
    step: int | None
    queue: deque[Job] = field(default_factory=deque)
    current: Job | None = None
    since: int = 0
    """When the current unit, or its setup, began."""
    suspended: dict[int, Job] = field(default_factory=dict)
    hosts: set[int] = field(default_factory=set)
    epoch: int = 0
    """Incremented to cancel what was scheduled in this worker."""
    stopping: bool = False
    limit: int = 0
    """How many units may be in flight; 0: one unit runs at a time, and it is `current`."""
    running: dict[int, Job] = field(default_factory=dict)
    """Units in flight that are begun and not suspended."""
    blocked: bool = False
    """Its event loop is blocked."""
    returning: bool = False
    """It begins no more units."""
    lost: bool = False
    """Its node is lost: its reports do not arrive any more."""
    reported_at: int = 0


def source_key(seed: int, number: int) -> int:
    return mix(mix(0, seed), number)


def service_key(data: Data, step: int) -> int:
    return mix(data.key, 2000 + step)


def outputs_of(model: StepModel, step: int, d: Data) -> list[Data]:
    """Return the outputs of a step for a task."""
    if model.fan_out == 1:
        return [d]
    return [d.child(position) for position in range(model.outputs(mix(d.key, 1000 + step)))]
