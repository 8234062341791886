"""The ranking of documents in a cluster: the first one is kept."""

from __future__ import annotations

from gristmill.lazy import np

POLICIES = ("hard", "easy", "random", "first", "longest", "best")
"""Ranked first: the farthest from the centroid, the nearest, a random one, the first of the input, the longest text,
the highest value of a column."""
BY_SCORE = ("random", "longest", "best")
"""Policies with a score for each document; the highest is first."""


def ranked(policy: str, row: np.ndarray, distance: np.ndarray, score: np.ndarray) -> np.ndarray:
    """Return the ranking of the documents of a cluster; equals in the order of the input.

    A document without a score (NaN) comes last.
    """
    if policy == "hard":
        first = -distance
    elif policy == "easy":
        first = distance
    elif policy == "first":
        first = np.zeros(len(row))
    else:
        first = -score  # NaN sorts after all numbers
    order: np.ndarray = np.lexsort((row, first))
    return order
