"""Arithmetic on GPUs, by torch."""

from __future__ import annotations

from typing import Any

from gristmill.lazy import np
from gristmill.stages.deduplication.semantic.fixed_point import fine_steps

SCORE_BYTES = 1 << 30
"""For the distances of a block of points to all centroids."""
MAX_BLOCK = 1 << 16
"""Points at most in a block; their sums are taken in float64."""


def load_torch() -> Any:
    try:
        import torch
    except ImportError:
        raise ImportError(
            "semantic deduplication on a GPU needs torch: pip install 'gristmill[models]'. device='cpu' does without."
        ) from None
    return torch


class TorchArithmetic:
    def __init__(self, device: str) -> None:
        torch = load_torch()
        self.device = torch.device(device)
        self.name = device
        if self.device.type == "cuda":
            # TF32 could hold the factors on the grid, but its precision of sums is not documented.
            torch.backends.cuda.matmul.allow_tf32 = False

    def free_bytes(self) -> int | None:
        if self.device.type != "cuda":
            return None
        free, _ = load_torch().cuda.mem_get_info(self.device)
        return int(free) // 2

    def peak_bytes(self) -> int:
        return int(load_torch().cuda.max_memory_allocated(self.device)) if self.device.type == "cuda" else 0

    def hold(self, points: np.ndarray) -> Any:
        return load_torch().from_numpy(points).to(self.device)

    def nearest(self, centroids: np.ndarray) -> TorchNearest:
        return TorchNearest(centroids, self.device)

    def spread(self, points: np.ndarray) -> TorchSpread:
        return TorchSpread(points, self.device)

    def best(self, rows: int, dim: int) -> TorchBest:
        return TorchBest(rows, dim, self.device)


def _floats(points: Any, device: Any) -> Any:
    torch = load_torch()
    there = points if isinstance(points, torch.Tensor) else torch.from_numpy(points)
    return there.to(device).to(torch.float32)


class TorchNearest:
    def __init__(self, centroids: np.ndarray, device: Any) -> None:
        torch = load_torch()
        self.device = device
        self.columns = _floats(centroids.T.copy(), device)
        self.squares = (self.columns * self.columns).sum(dim=0)
        self.block = max(1, min(MAX_BLOCK, SCORE_BYTES // (4 * len(centroids))))
        self.sums = torch.zeros(centroids.shape, dtype=torch.float64, device=device)
        self.counts = torch.zeros(len(centroids), dtype=torch.int64, device=device)

    def _labels(self, points: Any) -> Any:
        scores = points @ self.columns
        scores *= 2
        scores -= self.squares
        return scores.argmax(dim=1)

    def labels(self, points: Any) -> np.ndarray:
        found: np.ndarray = self._labels(_floats(points, self.device)).cpu().numpy()
        return found

    def add(self, points: Any) -> None:
        torch = load_torch()
        block = _floats(points, self.device)
        labels = self._labels(block)
        self.sums.index_add_(0, labels, block.to(torch.float64))
        self.counts += torch.bincount(labels, minlength=len(self.counts))

    def totals(self) -> tuple[np.ndarray, np.ndarray]:
        return self.sums.cpu().numpy(), self.counts.cpu().numpy()


class TorchSpread:
    def __init__(self, points: np.ndarray, device: Any) -> None:
        torch = load_torch()
        self.points = _floats(points, device)
        self.lengths = (self.points * self.points).sum(dim=1)
        self.nearest = torch.full_like(self.lengths, float("inf"))
        self.odds: Any = None

    def choose(self, index: int) -> int:
        torch = load_torch()
        away = self.lengths - 2 * (self.points @ self.points[index]) + self.lengths[index]
        self.nearest = torch.minimum(self.nearest, away)
        self.odds = self.nearest.to(torch.int64).cumsum(dim=0)
        return int(self.odds[-1])

    def find(self, drawn: int) -> int:
        return int(load_torch().searchsorted(self.odds, drawn, right=True))


class TorchBest:
    def __init__(self, rows: int, dim: int, device: Any) -> None:
        torch = load_torch()
        self.device = device
        self.steps = fine_steps(dim)
        self.top = torch.full((rows,), -float("inf"), dtype=torch.float64, device=device)
        self.where = torch.full((rows,), -1, dtype=torch.int64, device=device)

    def compare(self, at: int, mine: Any, first: int, others: Any, only_before: bool) -> None:
        torch = load_torch()
        values = self._products(mine, others)
        if only_before:
            later = torch.ones(values.shape, dtype=torch.bool, device=self.device).triu()
            values.masked_fill_(later, -float("inf"))
        value, index = values.max(dim=1)  # of equal ones the first
        part = slice(at, at + len(mine))
        better = value > self.top[part]
        self.top[part] = torch.where(better, value, self.top[part])
        self.where[part] = torch.where(better, index + first, self.where[part])

    def _products(self, mine: Any, others: Any) -> Any:
        torch = load_torch()
        coarse, rest = self._parts(mine)
        coarse_others, rest_others = self._parts(others)
        values = (coarse @ coarse_others.T).to(torch.float64)
        values *= self.steps
        values += torch.cat([coarse, rest], dim=1) @ torch.cat([rest_others, coarse_others], dim=1).T
        return values

    def _parts(self, points: Any) -> tuple[Any, Any]:
        torch = load_torch()
        coarse = torch.div(points + self.steps // 2, self.steps, rounding_mode="floor")
        return coarse.to(torch.float32), (points - coarse * self.steps).to(torch.float32)

    def found(self) -> np.ndarray:
        found: np.ndarray = self.where.cpu().numpy()
        return found
