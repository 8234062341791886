"""What resources allow: the best steady throughput, and how short a run cannot be."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Sequence

from gristmill.scheduling.simulator.bound.job import EPS, Job, Stage, staffed


def throughput(job: Job, needs: Sequence[float]) -> float:
    """The best throughput if each unit takes a stage so many seconds at speed 1."""

    def holds(rate: float) -> bool:
        return staffed(job, [rate * need * (1 - EPS) for need in needs]) is not None

    high = min(stage.capacity / need for stage, need in zip(job.stages, needs, strict=True))
    if not high or holds(high):
        return high
    if len({speed for stage in job.stages for speed in stage.speeds if speed}) == 1:
        # All workers are alike, so the optimum is that of some stage with a whole number of workers.
        speed = max(job.stages[0].speeds)
        rates = {
            n * speed / need
            for s, need in zip(job.stages, needs, strict=True)
            for n in range(1, round(s.capacity / speed) + 1)
        }
        ordered = sorted(rate for rate in rates if rate <= high)
        at = bisect_left(ordered, True, key=lambda rate: not holds(rate))
        return ordered[at - 1] if at else 0.0
    period = smallest(lambda seconds: holds(1 / seconds), 1 / high, 1e6 / high, 1e-7)
    return 1 / period if holds(1 / period) else 0.0


def smallest(holds: Callable[[float], bool], low: float, high: float, precision: float) -> float:
    """The smallest number from which on something holds; it is taken to hold at ``high``."""
    while high - low > precision * high:
        middle = math.sqrt(low * high) if low > 0 and high > 4 * low else (low + high) / 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


def may_last(job: Job, end: float) -> bool:
    """Whether nothing provable speaks against a makespan."""
    rows = []
    for stage, arrival, drain in zip(job.stages, job.arrivals, job.drains, strict=True):
        # The first of many workers may be ready early, but they take the mean setup together.
        span = end - drain - max(arrival, stage.setup_s)
        if span <= 0 or stage.work() > stage.capacity * span * (1 + EPS):
            return False
        # No worker works longer than the span, so that many must be set up.
        workers = math.ceil(stage.work() / max(stage.speeds) / span - 1e-6)
        rows.append((stage, max(0.0, arrival - stage.setup_s), drain, workers))
    with_gpu = [row for row in rows if any(row[0].shares)]
    without = [row for row in rows if not any(row[0].shares)]
    return (
        _suffices(job, with_gpu, end, gpu=True)
        and _suffices(job, rows, end, gpu=False)
        and _suffices(job, without, end, gpu=False)
    )


def _suffices(job: Job, rows: Sequence[tuple[Stage, float, float, int]], end: float, gpu: bool) -> bool:
    """Whether there are enough GPUs or CPUs for stages, each with its first start, its drain and its setups.

    Every node counts with the best speed that one of the stages has there.
    """
    speeds = [max((s.speeds[k] for s, *_ in rows), default=1.0) for k in range(len(job.kinds))]
    slowest = min((speed for speed in speeds if speed), default=1.0)
    have = sum(kind.count * (kind.gpus if gpu else kind.cpus) * v for kind, v in zip(job.kinds, speeds, strict=True))
    for start in {start for _, start, _, _ in rows}:
        for drain in {drain for _, _, drain, _ in rows}:
            need = sum(
                (min(s.shares) if gpu else s.cpus) * (s.work() + s.setup_s * n * slowest)
                for s, s_start, s_drain, n in rows
                if s_start >= start and s_drain >= drain
            )
            if need and need > have * (end - drain - start) * (1 + EPS):
                return False
    return True
