"""Which of several documents that say the same is the one to keep."""

from __future__ import annotations

from gristmill.lazy import np

POLICIES = ("hard", "easy", "random", "first", "longest", "best")
"""Kept first: the farthest from the centroid, the nearest, one by chance, the first of the input, the longest text,
the one with the highest value of a column."""
BY_SCORE = ("random", "longest", "best")
"""Those for which each document has a score; the highest is kept."""


def ranked(policy: str, row: np.ndarray, distance: np.ndarray, score: np.ndarray) -> np.ndarray:
    """The order in which documents of a cluster are preferred; equals in the order of the input.

    A document without a score (NaN) comes last.
    """
    if policy == "hard":
        first = -distance
    elif policy == "easy":
        first = distance
    elif policy == "first":
        first = np.zeros(len(row))
    else:
        first = -score  # NaN sorts behind all numbers
    order: np.ndarray = np.lexsort((row, first))
    return order
