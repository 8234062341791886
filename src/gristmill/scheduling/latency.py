"""How long units took, as a histogram with fixed buckets."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field

from gristmill.scheduling.snapshot import LATENCY_BOUNDS_US


def _no_counts() -> list[int]:
    return [0] * (len(LATENCY_BOUNDS_US) + 1)


@dataclass(slots=True)
class LatencyHistogram:
    """Counts of units by their time: at most 250 us, 500 us, 1 ms, ... and, last, longer than all bounds.

    >>> histogram = LatencyHistogram()
    >>> histogram.add(1000)
    >>> histogram.counts[:4], histogram.total_us
    ([0, 0, 1, 0], 1000)
    """

    counts: list[int] = field(default_factory=_no_counts)
    total_us: int = 0

    def add(self, us: int) -> None:
        """Count a unit that took so long."""
        self.counts[bisect_left(LATENCY_BOUNDS_US, us)] += 1
        self.total_us += us
