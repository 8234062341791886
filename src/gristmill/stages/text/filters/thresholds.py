"""Filters that keep scores on one side of a threshold, or between two."""

from __future__ import annotations

from collections.abc import Sequence

from gristmill.lazy import Array, np
from gristmill.stages.text.filters.document_filter import DocumentFilter


class AtMost(DocumentFilter):
    """Keeps scores up to ``most``; if ``exclusive``, scores below it."""

    most: float
    exclusive: bool = False

    @property
    def percent(self) -> str:
        return percent(self.most)

    def keep_batch(self, scores: Array) -> Array:
        return scores < self.most if self.exclusive else scores <= self.most


class AtLeast(DocumentFilter):
    """Keeps scores from ``least`` on; if ``exclusive``, scores above it."""

    least: float
    exclusive: bool = False

    @property
    def percent(self) -> str:
        return percent(self.least)

    def keep_batch(self, scores: Array) -> Array:
        return scores > self.least if self.exclusive else scores >= self.least


class InRange(DocumentFilter):
    """Keeps scores from ``least`` to ``most``. The reason tells whether a score is ``below`` or ``above``."""

    least: float
    most: float
    below: str
    above: str

    def keep_batch(self, scores: Array) -> Array:
        return (scores >= self.least) & (scores <= self.most)

    def reasons(self, scores: Array) -> Sequence[str]:
        # Not "score < least": NaN counts as too little.
        return [self.above if score > self.most else self.below for score in scores]


def ratio(part: Array, whole: Array, empty: float) -> Array:
    """Return ``part / whole``, and ``empty`` where ``whole`` is 0."""
    shares: Array = np.where(whole > 0, part / np.maximum(whole, 1), empty)
    return shares


def percent(share: float) -> str:
    return f"{share * 100:g}%"
