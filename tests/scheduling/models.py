"""How steps, nodes and workers behave in the world of these tests."""

from __future__ import annotations

from dataclasses import dataclass, field

from gristmill.scheduling import commands as c
from gristmill.scheduling import events as e

SECOND = 1_000_000
SOURCE_BYTES = 1000


def cpus(n: int, gpus: int = 0, node: int = 0, gpu_memory: int = 80 << 30) -> e.NodeJoined:
    """A node with so many CPUs and GPUs."""
    return e.NodeJoined(node, n * SECOND, 1 << 34, (gpu_memory,) * gpus)


@dataclass
class StepModel:
    """How a step behaves. Bad tasks are named by their source task ("7") or one item of it ("7#2")."""

    service_us: int = SECOND
    fan_out: int = 1
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
    failing_setups: int = 0
    """So many setups raise before one succeeds."""


@dataclass(frozen=True)
class Data:
    """What a task carries: its label, and which items of its source task."""

    label: str
    items: tuple[int, ...]

    @property
    def root(self) -> str:
        return self.label.split(".")[0]

    def is_in(self, bad: frozenset[str]) -> bool:
        return bool(bad) and (self.root in bad or any(f"{self.root}#{i}" in bad for i in self.items))


@dataclass
class Job:
    """A unit in a worker."""

    key: int
    step: int
    inputs: tuple[c.Input, ...]
    data: tuple[Data, ...]
    produced: int = 0


@dataclass
class VirtualWorker:
    node: int
    step: int | None
    queue: list[Job] = field(default_factory=list)
    current: Job | None = None
    suspended: dict[int, Job] = field(default_factory=dict)
    hosts: set[int] = field(default_factory=set)
    epoch: int = 0
    """Grows whenever what was about to happen in it no longer will."""
    stopping: bool = False
    lost: bool = False
    """Its node is gone: nothing that it said since is heard."""
    heard_at: int = 0
