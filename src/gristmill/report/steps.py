"""The steps of a recorded run, with what was observed while it ran and what was counted at its end."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from gristmill.report.place import Data


class RunStep(NamedTuple):
    """One step of one plan of a run."""

    plan: int
    number: int
    """In its plan."""
    name: str
    stages: list[str]
    asks: Data
    """What it asks for, and its counts when it was last seen."""
    stats: Data
    """Its statistics; empty for a run that has not ended."""
    series: Data
    """Its values over time, as lists."""
    accounts: list[Data]
    """The accounts of its stages."""
    wall_s: float
    """Of its plan."""

    @property
    def busy_s(self) -> float:
        return float(self.asks.get("busy_s", 0.0))

    @property
    def waiting_share(self) -> float:
        """The share of the time in which it had nothing to do because no input had come."""
        return self._share("waiting_s")

    @property
    def blocked_share(self) -> float:
        """The share of the time in which tasks waited because their output would not have fitted the byte budget."""
        return self._share("blocked_s")

    def _share(self, name: str) -> float:
        values = self.series.get(name) or [0.0]
        return float(values[-1]) / self.wall_s if self.wall_s else 0.0

    @property
    def busy_share(self) -> float | None:
        """The share of the available time of its workers in which they worked; None if it is not known."""
        share = self.stats.get("busy_share")
        return None if share is None else float(share)

    @property
    def most_workers(self) -> int:
        """The most workers that ran it at the same time, as far as was seen."""
        names = ("busy", "idle", "draining")
        if counted := int(self.stats.get("most_workers") or 0):
            return counted
        return max((sum(one) for one in zip(*(self.series.get(n) or [0] for n in names), strict=True)), default=0)

    @property
    def needs_gpu(self) -> bool:
        return bool(self.asks.get("gpus") or self.asks.get("gpu_memory_gb"))


def steps_of(data: Data) -> list[RunStep]:
    """Return the steps of all plans in order."""
    plans: Sequence[Data] = data.get("plans") or ()
    names = [(i, j, step) for i, plan in enumerate(plans) for j, step in enumerate(plan.get("steps", ()))]
    stats = dict(_matched([str(step.get("name")) for *_, step in names], data.get("steps") or ()))
    return [
        RunStep(
            plan=i,
            number=j,
            name=str(step.get("name", "")),
            stages=[str(name) for name in step.get("stages", ())],
            asks=step,
            stats=stats.get(position, {}),
            series=_of_step(plans[i], j),
            accounts=stats.get(position, {}).get("stages")
            or [stage for stage in plans[i].get("stages", ()) if stage.get("step") == j],
            wall_s=float(plans[i].get("wall_s") or 0.0),
        )
        for position, (i, j, step) in enumerate(names)
    ]


def _of_step(plan: Data, number: int) -> Data:
    found = plan.get("series", {}).get("steps") or []
    series: Data = found[number] if number < len(found) else {}
    return series


def _matched(names: Sequence[str], stats: Sequence[Data]) -> Iterator[tuple[int, Data]]:
    """Yield statistics by position of the step.

    The first ones are of phases that an earlier run has done: they are skipped. A run that failed in one of several
    phases has those of that phase only, which is the last one that began.
    """
    for back, (name, of_step) in enumerate(zip(reversed(names), reversed(stats), strict=False), 1):
        if of_step.get("name") != name:
            return
        yield len(names) - back, of_step
