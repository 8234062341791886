"""What a simulation found."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields
from typing import Any

from gristmill.scheduling.snapshot import Decision


@dataclass(frozen=True, slots=True)
class StageResult:
    """One stage of a simulated run."""

    name: str
    tasks_done: int
    tasks_failed: int
    busy_s: float
    available_s: float
    """Worker time from the end of setup until it left."""
    workers_started: int
    timeline: tuple[tuple[float, int], ...]
    """(seconds, workers from then on)"""

    @property
    def busy_share(self) -> float:
        return self.busy_s / self.available_s if self.available_s else 0.0


@dataclass(frozen=True, slots=True)
class SimulationResult:
    """What a simulation found. Its fields can be read as attributes or as ``result["makespan_s"]``."""

    load: str
    seed: int
    makespan_s: float
    ideal_s: float
    """Inputs divided by the best steady throughput; neither fill nor setups are in it."""
    share_of_optimum: float
    bound_s: float
    """What a planner that knows all true times can reach, setups, fill and drain paid."""
    share_of_bound: float
    limit_s: float
    """What no schedule can beat."""
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

    def __getitem__(self, name: str) -> Any:
        if name not in self.keys():
            raise KeyError(name)
        return getattr(self, name)

    def __iter__(self) -> Iterator[str]:
        return iter(self.keys())

    def keys(self) -> list[str]:
        return [f.name for f in fields(self)]

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain values, for JSON."""
        return asdict(self)
