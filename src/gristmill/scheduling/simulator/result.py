"""The result of a simulation."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, fields
from functools import cached_property
from typing import Any

from gristmill.scheduling.simulator.loads import Load
from gristmill.scheduling.simulator.optimum import ideal_s
from gristmill.scheduling.snapshot import Decision

_LAZY = ("ideal_s", "share_of_optimum")


@dataclass(frozen=True, slots=True)
class StageResult:
    """One stage of a simulated run."""

    name: str
    tasks_done: int
    tasks_failed: int
    busy_s: float
    available_s: float
    """Worker time from the end of setup until it left; of all shared workers for a stage that runs on them."""
    workers_started: int
    timeline: tuple[tuple[float, int], ...]
    """(seconds, workers from then on)"""

    @property
    def busy_share(self) -> float:
        return self.busy_s / self.available_s if self.available_s else 0.0


@dataclass(frozen=True)
class SimulationResult:
    """The result of a simulation. Fields can be read as attributes or as ``result["makespan_s"]``."""

    load: str
    seed: int
    makespan_s: float
    workers_started: int
    work_lost_s: float
    """Time spent on tasks that were then taken from their worker."""
    peak_queue_bytes: int
    """The most bytes of tasks that waited or ran at one time."""
    budget_bytes: int
    event_hash: str
    events: int
    tasks_failed: int
    aborted: str
    """Why the run ended early; empty if it did not."""
    stages: tuple[StageResult, ...]
    decisions: tuple[Decision, ...]
    stated: Load = field(repr=False)
    """The work that was simulated."""

    @cached_property
    def ideal_s(self) -> float:
        """Inputs divided by the best steady throughput; neither fill nor setups are in it."""
        return self.stated.ideal_s or ideal_s(self.stated)

    @property
    def share_of_optimum(self) -> float:
        """0 if nothing was delivered."""
        return self.ideal_s / self.makespan_s if self.makespan_s else 0.0

    def __getitem__(self, name: str) -> Any:
        if name not in self.keys():
            raise KeyError(name)
        return getattr(self, name)

    def __iter__(self) -> Iterator[str]:
        return iter(self.keys())

    def keys(self) -> list[str]:
        return [*(f.name for f in fields(self) if f.repr), *_LAZY]

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain values, for JSON."""
        plain = {name: self[name] for name in self.keys()}
        plain["stages"] = [asdict(stage) for stage in self.stages]
        plain["decisions"] = [asdict(decision) for decision in self.decisions]
        return plain
