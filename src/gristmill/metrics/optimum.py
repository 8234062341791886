"""The share of optimum: measured throughput of the bottleneck, compared with what the current plan allows."""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gristmill.metrics.history import PlanHistory

WINDOW_S = 30.0
TASKS = 20
"""The window is so long that so many tasks of the bottleneck should end in it, if that is longer."""
_LEAST_S = 1.0


def share_of_optimum(history: PlanHistory) -> float | None:
    """Return the share, or None while it is not known. It may exceed 1, as the estimates of service times may be wrong.

    The throughput is that of the last `WINDOW_S`, or longer if tasks are long. The optimum is
    `StepSnapshot.optimum_ns` of the bottleneck.
    """
    if history.last is None:
        return None
    snapshot = history.last.snapshot
    if snapshot.bottleneck is None:
        return None
    step = snapshot.steps[snapshot.bottleneck]
    if not step.optimum_ns or not step.tasks_done:
        return None
    now = snapshot.now_us / 1e6
    window = max(WINDOW_S, TASKS * step.optimum_ns / 1e9)
    points = history.points
    first = points[max(0, bisect_right(points, now - window, key=lambda point: point.at_s) - 1)]
    elapsed = now - first.at_s
    if elapsed < _LEAST_S:
        return None
    done = step.tasks_done - first.steps[snapshot.bottleneck].tasks_done
    return done / elapsed * step.optimum_ns / 1e9
