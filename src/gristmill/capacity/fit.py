"""How the time of a task depends on its size, from measured units."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt
from statistics import fmean, median

from gristmill.capacity.events import MeasuredUnit

_ENOUGH = 4
_SPREAD = 2.0
"""Sizes must differ by this factor for the fixed part of a time to be separated from the rest."""


@dataclass(frozen=True, slots=True)
class Fit:
    """Time = ``fixed_s`` + ``rate`` * size, for a task in a worker that has done one before."""

    fixed_s: float
    rate: float
    cv: float
    """Standard deviation of a measured time, as a share of the time by this formula."""
    error: float
    """Standard error of the time of a task, as a share of it."""
    first_s: float
    """What the first task of a worker takes more."""
    units: int

    def at(self, size: float) -> float:
        return self.fixed_s + self.rate * size


def fit(units: Sequence[MeasuredUnit]) -> Fit:
    """Fit units of one step; there must be one at least. Sizes of 0 mean that the time does not depend on the size."""
    warm = [unit for unit in units if not unit.is_first]
    cold = [unit for unit in units if unit.is_first]
    used = warm if len(warm) >= _ENOUGH else list(units)
    fixed, rate = _line(used)
    expected = [max(fixed + rate * unit.size, 1e-9) for unit in used]
    ratios = [unit.busy_s / time for unit, time in zip(used, expected, strict=True)]
    spread = sqrt(fmean((ratio - 1) ** 2 for ratio in ratios) * len(used) / max(1, len(used) - 1))
    error = spread / sqrt(len(used)) if len(used) > 1 else 1.0
    first = 0.0
    if used is warm and cold:
        first = max(0.0, median(unit.busy_s - fixed - rate * unit.size for unit in cold))
    return Fit(fixed, rate, spread, error, first, len(used))


def _line(units: Sequence[MeasuredUnit]) -> tuple[float, float]:
    """Return the fixed part and the rate, neither below 0. Errors are taken to grow with the size."""
    total = sum(unit.size for unit in units)
    time = sum(unit.busy_s for unit in units)
    if not total:
        return time / len(units), 0.0
    sizes = [unit.size for unit in units]
    if min(sizes) <= 0 or max(sizes) < _SPREAD * min(sizes):
        return 0.0, time / total
    weights = [1 / unit.size for unit in units]
    w = sum(weights)
    mean_size = sum(a * unit.size for a, unit in zip(weights, units, strict=True)) / w
    mean_time = sum(a * unit.busy_s for a, unit in zip(weights, units, strict=True)) / w
    square = sum(a * (unit.size - mean_size) ** 2 for a, unit in zip(weights, units, strict=True))
    product = sum(
        a * (unit.size - mean_size) * (unit.busy_s - mean_time) for a, unit in zip(weights, units, strict=True)
    )
    rate = product / square
    fixed = mean_time - rate * mean_size
    if fixed < 0:
        return 0.0, time / total
    if rate < 0:
        return time / len(units), 0.0
    return fixed, rate


def growth(small: tuple[float, float], large: tuple[float, float]) -> tuple[float, float]:
    """Return the fixed part and the part per unit of size of two measured times, each a size and a time."""
    (x, a), (y, b) = small, large
    if y <= x * 1.2:
        return 0.0, b / y if y else 0.0
    slope = min(max(0.0, (b - a) / (y - x)), b / y)
    return max(0.0, b - slope * y), slope
