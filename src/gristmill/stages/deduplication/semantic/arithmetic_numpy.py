"""Arithmetic on CPUs, by NumPy: torch is no faster there, and slow to import."""

from __future__ import annotations

import numpy as np

from gristmill.stages.deduplication.semantic.fixed_point import EXACT, GRID, fine_steps, whole_steps

SCORE_BYTES = 64 << 20
"""For the distances of a block of points to all centroids."""
BLOCK = EXACT // GRID // 2
"""Points at most in a block of k-means: float32 holds the sum of as many coordinates."""
DENSE = 0.02
"""With a larger share of promising pairs the rests of all pairs are multiplied at once."""
PAIRS = 4096
"""Otherwise, pairs whose rests are multiplied at a time."""


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
        self.block = max(1, min(BLOCK, SCORE_BYTES // (4 * len(centroids))))
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
        rows = points[order].astype(np.float32)
        there, first = np.unique(labels[order], return_index=True)
        ones = np.ones(len(rows), dtype=np.float32)
        for label, a, b in zip(there.tolist(), first.tolist(), [*first[1:].tolist(), len(rows)], strict=True):
            self.sums[label] += ones[a:b] @ rows[a:b]  # the float32 sum of a block is exact, and this is fastest
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


class _Parts:
    """Points as coarse parts and rests, with the lengths of both."""

    def __init__(self, points: np.ndarray, steps: int) -> None:
        whole = whole_steps(points)
        self.coarse = whole.astype(np.float32)
        self.rest = (points - whole * steps).astype(np.float32)
        self.length = np.sqrt(np.einsum("ij,ij->i", self.coarse, self.coarse).astype(np.float64))
        self.rest_length = np.sqrt(np.einsum("ij,ij->i", self.rest, self.rest).astype(np.float64))


class NumpyBest:
    """Compares coarse parts first: then the rests of few pairs can matter."""

    def __init__(self, rows: int, dim: int) -> None:
        self.steps = fine_steps(dim)
        self.top = np.full(rows, -np.inf)
        """In fine steps: whole numbers, without products of rests and rests, which are below a millionth."""
        self.where = np.full(rows, -1, dtype=np.int64)
        self._others: tuple[np.ndarray | None, _Parts | None] = (None, None)

    def compare(self, at: int, mine: np.ndarray, first: int, others: np.ndarray, only_before: bool) -> None:
        right = self._others[1] if self._others[0] is others else None
        if right is None:
            right = _Parts(others, self.steps)
            self._others = (others, right)
        left = right if only_before else _Parts(mine, self.steps)
        products = left.coarse @ right.coarse.T
        if only_before:
            np.copyto(products, -np.inf, where=~np.tri(len(mine), k=-1, dtype=bool))
        part = slice(at, at + len(mine))
        places = self._promising(products, left, right, self.top[part])
        if len(places) > products.size * DENSE:
            self._all(products, left, right, part, first)
        elif len(places):
            self._some(products, left, right, places, part, first)

    def _promising(self, products: np.ndarray, left: _Parts, right: _Parts, top: np.ndarray) -> np.ndarray:
        """Return the places of pairs that may be a row's best, by a bound on rests."""
        bound = left.length * right.rest_length.max() + left.rest_length * right.length.max()
        bound = np.ceil(bound / self.steps) + 1
        floor = np.maximum(products.max(axis=1) - 2 * bound, np.floor(top / self.steps) - bound)
        floor = np.maximum(floor, -2.0 * EXACT)  # below all products, above -inf
        return np.flatnonzero(products >= floor.astype(np.float32)[:, None])

    def _all(self, products: np.ndarray, left: _Parts, right: _Parts, part: slice, first: int) -> None:
        values = products.astype(np.float64)
        values *= self.steps
        values += np.hstack([left.coarse, left.rest]) @ np.hstack([right.rest, right.coarse]).T
        index = values.argmax(axis=1)  # of equal ones the first
        self._take(part.start + np.arange(len(index)), values[np.arange(len(index)), index], index + first)

    def _some(
        self, products: np.ndarray, left: _Parts, right: _Parts, places: np.ndarray, part: slice, first: int
    ) -> None:
        rows, columns = np.divmod(places, products.shape[1])
        values = products.reshape(-1)[places].astype(np.float64) * self.steps
        for at in range(0, len(places), PAIRS):
            r, c = rows[at : at + PAIRS], columns[at : at + PAIRS]
            values[at : at + PAIRS] += np.einsum("ij,ij->i", left.coarse[r], right.rest[c])
            values[at : at + PAIRS] += np.einsum("ij,ij->i", left.rest[r], right.coarse[c])
        each, start = np.unique(rows, return_index=True)
        best = np.maximum.reduceat(values, start)
        is_best = np.flatnonzero(values == best[np.searchsorted(each, rows)])
        _, leading = np.unique(rows[is_best], return_index=True)  # of equal ones the first
        self._take(part.start + each, best, columns[is_best[leading]] + first)

    def _take(self, rows: np.ndarray, values: np.ndarray, ranks: np.ndarray) -> None:
        better = values > self.top[rows]
        self.top[rows[better]] = values[better]
        self.where[rows[better]] = ranks[better]

    def found(self) -> np.ndarray:
        return self.where
