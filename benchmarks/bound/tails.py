"""How a stage ends: its last tasks are all under way, and the longest of them decides."""

from __future__ import annotations

import math
from functools import lru_cache

_STEPS = 400


@lru_cache(maxsize=4096)
def longest_rest_s(mean_s: float, cv: float, workers: int) -> float:
    """The average time that the longest of so many running tasks still takes; service times are lognormal.

    What is left of a task at a random moment exceeds x with probability E[(X - x)+] / E[X].

    >>> round(longest_rest_s(10.0, 0.0, 9), 3), 60 < longest_rest_s(10.0, 1.0, 100) < 120
    (9.0, True)
    """
    if workers <= 0 or mean_s <= 0:
        return 0.0
    if cv <= 0:
        return mean_s * workers / (workers + 1)
    sigma = math.sqrt(math.log1p(cv * cv))
    low, high = mean_s * 1e-3, mean_s * math.exp(sigma * 6 + sigma * sigma / 2)
    ratio = (high / low) ** (1 / _STEPS)
    total, x = low, low
    for _ in range(_STEPS):
        following = x * ratio
        total += (1 - (1 - _exceeds(math.sqrt(x * following), mean_s, sigma)) ** workers) * (following - x)
        x = following
    return total


def _exceeds(x: float, mean_s: float, sigma: float) -> float:
    d = (math.log(mean_s / x) + sigma * sigma / 2) / sigma
    return min(1.0, max(0.0, _normal(d) - x / mean_s * _normal(d - sigma)))


def _normal(x: float) -> float:
    return math.erfc(-x / math.sqrt(2)) / 2
