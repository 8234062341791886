"""Limits by resources: the least time that a run can take."""

from __future__ import annotations

import math
from collections.abc import Sequence

from bound.job import Job, work_left
from gristmill.scheduling.simulator.optimum import EPS, Stage


def may_last(job: Job, end: float) -> bool:
    """Whether nothing provable speaks against a makespan."""
    rows = []
    for stage, arrival, drain in zip(job.stages, job.arrivals, job.drains, strict=True):
        # The first of many workers may be ready early, but they take the mean setup together.
        span = end - drain - max(arrival, stage.setup_s)
        if span <= 0 or work_left(stage) > stage.capacity * span * (1 + EPS):
            return False
        # No worker works longer than the span, so that many must be set up.
        workers = math.ceil(work_left(stage) / max(stage.speeds) / span - 1e-6)
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
                (min(s.shares) if gpu else s.cpus) * (work_left(s) + s.setup_s * n * slowest)
                for s, s_start, s_drain, n in rows
                if s_start >= start and s_drain >= drain
            )
            if need and need > have * (end - drain - start) * (1 + EPS):
                return False
    return True
