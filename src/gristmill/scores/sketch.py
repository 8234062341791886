"""Distributions of numbers in bounded memory: counts, quantiles and histograms of a stream of arrays."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from gristmill.lazy import Array, np

FINE_BINS = 4096
"""Bins of equal width that are held; their width doubles as the range grows."""
PER_OCTAVE = 32
"""Bins of a sketch for each doubling of the number, so a quantile is off by at most 1.1 %."""
_MOST_OCTAVES = 1100
_LARGEST_BIN = 1 << 52
"""Larger numbers of bins are not exact."""


@dataclass(frozen=True)
class Histogram:
    """Counts of numbers between edges: ``counts[i]`` of them from ``edges[i]`` to below ``edges[i + 1]``."""

    edges: Sequence[float]
    counts: Sequence[int]
    is_log: bool = False
    """Whether each bin is wider than the one before by the same factor, but for the first, which holds zeros."""


@dataclass
class Distribution:
    """A stream of numbers as counts: memory is bounded, and the order of the numbers has no effect.

    The smallest and largest number, the mean and the bins of `linear` are exact. Quantiles, and the edges of `log`, are
    off by at most 1.1 % of the number.
    """

    count: int = 0
    missing: int = 0
    """Numbers that are not finite."""
    least: float = math.inf
    most: float = -math.inf
    total: float = 0.0
    whole: bool = True
    """Whether all numbers are whole."""
    _power: int = -60
    """The width of a bin is 2 to this power."""
    _first: int = 0
    _counts: Array | None = None
    _octaves: dict[int, int] = field(default_factory=dict)
    """By sign and size: 0 for zero, else the bin of the logarithm, negative for negative numbers."""

    def add(self, values: Array) -> None:
        """Add numbers."""
        values = np.asarray(values, dtype=np.float64)
        finite = np.isfinite(values)
        if not finite.all():
            self.missing += int(len(values) - finite.sum())
            values = values[finite]
        if not len(values):
            return
        self.count += len(values)
        self.least = min(self.least, float(values.min()))
        self.most = max(self.most, float(values.max()))
        self.total += float(values.sum())
        self.whole = self.whole and bool((values == np.floor(values)).all())
        self._add_linear(values)
        self._add_octaves(values)

    def merge(self, other: Distribution) -> None:
        """Add the numbers of another distribution."""
        self.missing += other.missing
        if not other.count:
            return
        self.count += other.count
        self.total += other.total
        self.least, self.most = min(self.least, other.least), max(self.most, other.most)
        self.whole = self.whole and other.whole
        for key, n in other._octaves.items():
            self._octaves[key] = self._octaves.get(key, 0) + n
        assert other._counts is not None
        first, counts = self._widen(other._power)
        theirs_first, theirs = _coarser(other._first, other._counts, self._power - other._power)
        counts[theirs_first - first : theirs_first - first + len(theirs)] += theirs
        self._first, self._counts = first, counts

    def _add_linear(self, values: Array) -> None:
        first, counts = self._widen(self._power)
        bins = np.floor(np.ldexp(values, -self._power)).astype(np.int64) - first
        counts += np.bincount(bins, minlength=len(counts))
        self._first, self._counts = first, counts

    def _widen(self, power: int) -> tuple[int, Array]:
        """Make bins at least 2 to ``power`` wide, and wide enough for all numbers. Return the first, and all counts."""
        power = max(power, self._power)
        least, most = self._bin(self.least, power), self._bin(self.most, power)
        while most - least >= FINE_BINS or max(most, -least) >= _LARGEST_BIN:
            power += 1
            least, most = self._bin(self.least, power), self._bin(self.most, power)
        first = self._bin(self.least, power)
        counts = np.zeros(self._bin(self.most, power) - first + 1, np.int64)
        if self._counts is not None:
            mine_first, mine = _coarser(self._first, self._counts, power - self._power)
            counts[mine_first - first : mine_first - first + len(mine)] += mine
        self._power = power
        return first, counts

    @staticmethod
    def _bin(value: float, power: int) -> int:
        return math.floor(math.ldexp(value, -power)) if abs(value) < 1e300 else int(value) // (1 << max(power, 0))

    def _add_octaves(self, values: Array) -> None:
        sizes = np.abs(values)
        logs = np.zeros(len(values), dtype=np.int64)
        there = sizes > 0
        logs[there] = np.floor(np.log2(sizes[there]) * PER_OCTAVE).astype(np.int64) + _MOST_OCTAVES * PER_OCTAVE + 1
        logs = np.where(values < 0, -logs, logs)
        for key, n in zip(*(one.tolist() for one in np.unique(logs, return_counts=True)), strict=True):
            self._octaves[key] = self._octaves.get(key, 0) + n

    @property
    def mean(self) -> float:
        return self.total / self.count if self.count else math.nan

    def quantile(self, share: float) -> float:
        """Return the number that ``share`` of all are not above, to 1.1 %."""
        if not self.count:
            return math.nan
        wanted = max(1, math.ceil(share * self.count))
        seen = 0
        for key in sorted(self._octaves):
            seen += self._octaves[key]
            if seen >= wanted:
                value = _middle(key)
                value = round(value) if self.whole else value
                return float(min(max(value, self.least), self.most))
        return self.most

    def linear(self, bins: int = 40) -> Histogram:
        """Return at most ``bins`` bins of equal width."""
        if self._counts is None:
            return Histogram([], [])
        power, first, counts = self._power, self._first, self._counts
        least = 0 if self.whole else -1074
        while len(counts) > bins or power < least:
            first, counts = _coarser(first, counts, 1)
            power += 1
        edges = [math.ldexp(first + k, power) for k in range(len(counts) + 1)]
        return Histogram(edges, counts.tolist())

    def log(self, bins: int = 40) -> Histogram | None:
        """Return at most ``bins`` bins, each wider than the one before; None if there are numbers below zero."""
        if not self.count or self.least < 0:
            return None
        keys = sorted(key for key in self._octaves if key)
        zeros = self._octaves.get(0, 0)
        if not keys:
            return Histogram([0.0, 1.0], [zeros], is_log=True)
        step = max(1, -(-(keys[-1] - keys[0] + 1) // max(1, bins - bool(zeros))))
        counts = [0] * ((keys[-1] - keys[0]) // step + 1)
        for key in keys:
            counts[(key - keys[0]) // step] += self._octaves[key]
        edges = [_edge(keys[0] + k * step) for k in range(len(counts) + 1)]
        return Histogram([0.0] * bool(zeros) + edges, [zeros] * bool(zeros) + counts, is_log=True)

    def shown(self, bins: int = 40) -> Histogram:
        """Return the histogram that shows more: with wider and wider bins if a few numbers are far above the rest."""
        wide = self.log(bins)
        if wide is not None and self.most > 20 * max(self.quantile(0.5), self.most * 1e-9) and self.most > 10:
            return wide
        return self.linear(bins)


def _coarser(first: int, counts: Array, doublings: int) -> tuple[int, Array]:
    """Return bins that are wider. Bins begin at multiples of their width, so two of them make one."""
    for _ in range(doublings):
        counts = np.concatenate([np.zeros(first % 2, np.int64), counts])
        counts = np.concatenate([counts, np.zeros(len(counts) % 2, np.int64)]).reshape(-1, 2).sum(axis=1)
        first //= 2
    return first, counts


def _edge(key: int) -> float:
    return float(2.0 ** ((key - 1) / PER_OCTAVE - _MOST_OCTAVES))


def _middle(key: int) -> float:
    if key == 0:
        return 0.0
    size = 2.0 ** ((abs(key) - 0.5) / PER_OCTAVE - _MOST_OCTAVES)
    return size if key > 0 else -size
