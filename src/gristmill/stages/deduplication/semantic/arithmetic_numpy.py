"""On CPUs, by NumPy: torch is no faster there, and slow to import."""

from __future__ import annotations

from typing import Any

import numpy as np

from gristmill.stages.deduplication.semantic.arithmetic import MAX_BLOCK
from gristmill.stages.deduplication.semantic.fixed_point import fine_steps

SCORE_BYTES = 64 << 20
"""For the distances of a block of points to all centroids."""


class NumpyArithmetic:
    name = "cpu"

    def free_bytes(self) -> int | None:
        return None

    def peak_bytes(self) -> int:
        return 0

    def hold(self, points: np.ndarray) -> np.ndarray:
        return points

    def nearest(self, centroids: np.ndarray) -> NumpyNearest:
        return NumpyNearest(centroids)

    def spread(self, points: np.ndarray) -> NumpySpread:
        return NumpySpread(points)

    def best(self, rows: int, dim: int) -> NumpyBest:
        return NumpyBest(rows, dim)


class NumpyNearest:
    def __init__(self, centroids: np.ndarray) -> None:
        self.columns = centroids.astype(np.float32).T.copy()
        self.squares = (self.columns * self.columns).sum(axis=0)
        self.block = max(1, min(MAX_BLOCK, SCORE_BYTES // (4 * len(centroids))))
        self.sums = np.zeros(centroids.shape)
        self.counts = np.zeros(len(centroids), dtype=np.int64)

    def labels(self, points: np.ndarray) -> np.ndarray:
        scores = points.astype(np.float32) @ self.columns
        scores *= 2
        scores -= self.squares
        return scores.argmax(axis=1)

    def add(self, points: np.ndarray) -> None:
        labels = self.labels(points)
        order = np.argsort(labels, kind="stable")
        there, first = np.unique(labels[order], return_index=True)
        self.sums[there] += np.add.reduceat(points[order], first, axis=0, dtype=np.int64)
        self.counts += np.bincount(labels, minlength=len(self.counts))

    def totals(self) -> tuple[np.ndarray, np.ndarray]:
        return self.sums, self.counts


class NumpySpread:
    def __init__(self, points: np.ndarray) -> None:
        self.points = points.astype(np.float32)
        self.lengths = (self.points * self.points).sum(axis=1)
        self.nearest = np.full(len(points), np.inf, dtype=np.float32)
        self.odds = np.zeros(0, dtype=np.int64)

    def choose(self, index: int) -> int:
        away = self.lengths - 2 * (self.points @ self.points[index]) + self.lengths[index]
        self.nearest = np.minimum(self.nearest, away)
        self.odds = np.cumsum(self.nearest.astype(np.int64))
        return int(self.odds[-1])

    def find(self, drawn: int) -> int:
        return int(np.searchsorted(self.odds, drawn, side="right"))


class NumpyBest:
    def __init__(self, rows: int, dim: int) -> None:
        self.steps = fine_steps(dim)
        self.top = np.full(rows, -np.inf)
        self.where = np.full(rows, -1, dtype=np.int64)

    def compare(self, at: int, mine: np.ndarray, first: int, others: np.ndarray, only_before: bool) -> None:
        values = self._products(mine, others)
        if only_before:
            values[np.triu_indices(len(mine))] = -np.inf
        index = values.argmax(axis=1)  # of equal ones the first
        value = values[np.arange(len(values)), index]
        part = slice(at, at + len(mine))
        better = value > self.top[part]
        self.top[part] = np.where(better, value, self.top[part])
        self.where[part] = np.where(better, index + first, self.where[part])

    def _products(self, mine: np.ndarray, others: np.ndarray) -> np.ndarray:
        """Dot products in fine steps, as whole numbers in float64, without those of rests and rests.

        These are below the millionths that the grid leaves open.
        """
        coarse, rest = self._parts(mine)
        coarse_others, rest_others = self._parts(others)
        values = (coarse @ coarse_others.T).astype(np.float64)
        values *= self.steps
        values += np.hstack([coarse, rest]) @ np.hstack([rest_others, coarse_others]).T
        return values

    def _parts(self, points: Any) -> tuple[np.ndarray, np.ndarray]:
        coarse = (points + self.steps // 2) // self.steps
        return coarse.astype(np.float32), (points - coarse * self.steps).astype(np.float32)

    def found(self) -> np.ndarray:
        return self.where
