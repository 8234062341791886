"""How many requests are best in flight: found from the latency and the refusals of answers."""

from __future__ import annotations

from statistics import median

FIRST = 16
"""Requests in flight at the beginning."""
MOST_REFUSED = 0.05
"""The share of refused attempts in a window that is taken for overload."""
LESS = 0.7
LEAST_GAIN = 0.3
"""The share of the expected gain in throughput that a larger number must bring to be kept."""
HOLD = 8
"""Windows until a larger number is tried again after it brought nothing."""
_WINDOW = 64
"""The least answers in a window while the number doubles. Smaller steps need more, to be distinguished from noise."""


class Concurrency:
    """The number of requests in flight, at most ``most``.

    Each answer is noted. After a change, as many answers as were in flight are skipped, since they were sent before it.
    The next ones are a window. By Little's law its throughput is the number in flight divided by the latency. That is
    the median, so that a few slow answers do not matter. The number doubles while that raises the throughput. Then it
    rises by an eighth at a time.
    """

    def __init__(self, most: int, first: int | None = None) -> None:
        self.most = most
        self.limit = min(most, FIRST if first is None else first)
        self.changes = 0
        self._doubles = True
        self._hold = 0
        self._before: tuple[int, float] | None = None
        """The number before the last increase, and its throughput."""
        self._begin(0)

    def note(self, latency_s: float, refused: bool, is_full: bool) -> bool:
        """Note the end of an attempt. Return whether the number has changed.

        ``is_full``: all slots were used. Otherwise a larger number would not be used either.
        """
        if self._skip:
            self._skip -= 1
            return False
        self._count += 1
        self._refused += refused
        self._full += is_full
        if not refused:
            self._latencies.append(latency_s)
        if self._count < max(self.limit, _WINDOW) * (1 if self._doubles else 2):
            return False
        before = self.limit
        self._decide()
        self._begin(before if self.limit != before else 0)
        self.changes += self.limit != before
        return self.limit != before

    def _begin(self, skip: int) -> None:
        self._skip = skip
        self._count = self._refused = self._full = 0
        self._latencies: list[float] = []

    def _decide(self) -> None:
        if self._refused > MOST_REFUSED * self._count:
            self._doubles, self._before, self._hold = False, None, HOLD
            self.limit = max(1, int(self.limit * LESS))
            return
        if self._full * 2 < self._count:
            return
        throughput = self.limit / max(median(self._latencies), 1e-6)
        if self._before is not None:
            smaller, least = self._before
            self._before = None
            wanted = least * (1 + LEAST_GAIN * (self.limit / smaller - 1))
            if throughput < wanted:
                self._doubles, self._hold = False, HOLD
                self.limit = smaller
                return
        if self._hold:
            self._hold -= 1
            return
        if self.limit < self.most:
            self._before = (self.limit, throughput)
            step = self.limit if self._doubles else max(1, self.limit // 8)
            self.limit = min(self.most, self.limit + step)
