"""A load with equal nodes taken together, and when each of its stages can work."""

from __future__ import annotations

from dataclasses import dataclass, field

from gristmill.scheduling.simulator.optimum import EPS, KindCapacity, Packing, Staffing, Stage, orders

_QUICKEST_SETUP = 0.9
"""A setup is uniform within 10 % of its mean."""


@dataclass(eq=False)
class Job(Packing):
    """A load, with the time window of each stage."""

    arrivals: tuple[float, ...] = ()
    """When each stage can have its first task, and a worker for it."""
    drains: tuple[float, ...] = ()
    """The time that the last task still needs when it leaves the stage."""
    effort: int = 0
    """How many stages the search has computed so far."""
    packed: dict[tuple[int, tuple[int, ...]], bool] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not all(stage.capacity for stage in self.stages):
            return
        arrivals, at = [], 0.0
        for stage in self.stages:
            at = max(at, stage.setup_s * _QUICKEST_SETUP)
            arrivals.append(at)
            at += quickest_s(stage)
        self.arrivals = tuple(arrivals)
        self.drains = tuple(sum(map(quickest_s, self.stages[i + 1 :])) for i in range(len(self.stages)))

    @property
    def last_arrival(self) -> float:
        return max(a + quickest_s(s) + d for a, s, d in zip(self.arrivals, self.stages, self.drains, strict=True))


def quickest_s(stage: Stage) -> float:
    return min(mean for _, mean in stage.paces) / max(stage.speeds)


def work_left(stage: Stage, done: float = 0.0) -> float:
    """Seconds at speed 1 that are left after so many tasks."""
    ends = [*(first for first, _ in stage.paces[1:]), stage.tasks]
    return sum(
        max(0.0, min(end, stage.tasks) - max(first, done)) * mean
        for (first, mean), end in zip(stage.paces, ends, strict=True)
    )


def can_hold(job: Job, plan: Staffing) -> bool:
    if any(sum(row) > stage.most for row, stage in zip(plan, job.stages, strict=True)):
        return False
    return all(_kind_fits(job, k, tuple(row[k] for row in plan)) for k in range(len(job.kinds)))


def _kind_fits(job: Job, k: int, counts: tuple[int, ...]) -> bool:
    known = job.packed.get((k, counts))
    if known is None:
        kind = job.kinds[k]
        pairs = list(zip(counts, job.stages, strict=True))
        known = (
            sum(n * stage.cpus for n, stage in pairs) <= kind.count * kind.cpus + EPS
            and sum(n * stage.shares[k] for n, stage in pairs) <= kind.count * kind.gpus + EPS
            and sum(n * stage.memory for n, stage in pairs) <= kind.count * kind.memory * (1 + EPS)
            and any(_packs(job, k, counts, order, spread) for order, spread in orders(job))
        )
        job.packed[k, counts] = known
    return known


def _packs(job: Job, k: int, counts: tuple[int, ...], order: list[int], spread: bool) -> bool:
    capacity = KindCapacity(job.kinds[k], k)
    return all(capacity.place(job.stages[i], counts[i], spread) == counts[i] for i in order if counts[i])
