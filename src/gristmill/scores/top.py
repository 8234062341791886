"""The most frequent values of a stream in bounded memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

CAPACITY = 10_000


@dataclass
class TopCounts:
    """Counts of values. If there are more than ``capacity`` different ones, counts may be too low by up to ``error``.

    ``error`` is at most ``total / capacity`` (the summary of Misra and Gries, which can be merged).
    """

    capacity: int = CAPACITY
    counts: Counter[str] = field(default_factory=Counter)
    total: int = 0
    error: int = 0

    def add(self, values: Iterable[str] | Mapping[str, int]) -> None:
        """Add values, or counts of values."""
        found = Counter(values)
        self.total += found.total()
        self.counts.update(found)
        self._cut()

    def merge(self, other: TopCounts) -> None:
        """Add the counts of another summary."""
        self.total += other.total
        self.error += other.error
        self.counts.update(other.counts)
        self._cut()

    def _cut(self) -> None:
        if len(self.counts) <= self.capacity:
            return
        less = sorted(self.counts.values(), reverse=True)[self.capacity]
        self.counts = Counter({value: n - less for value, n in self.counts.items() if n > less})
        self.error += less

    def most_common(self, number: int) -> list[tuple[str, int]]:
        """Return the most frequent values with their counts."""
        return sorted(self.counts.items(), key=lambda one: (-one[1], one[0]))[:number]
