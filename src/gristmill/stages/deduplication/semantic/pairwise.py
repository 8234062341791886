"""For each document of a cluster, the most similar one that is ranked before it."""

from __future__ import annotations

import os
from typing import Any, Protocol

from gristmill.lazy import np
from gristmill.stages.deduplication.semantic.devices import free_bytes, load_torch
from gristmill.stages.deduplication.semantic.fixed_point import cosine, fine_steps

POINT_BYTES = 4
"""Of a coordinate on the grid."""
COMPARED = 4096
"""Pairs whose similarity is computed to the last digit at a time."""


class Rows(Protocol):
    """Points on the grid in the order of their rank."""

    def read(self, start: int, stop: int) -> np.ndarray: ...

    def gather(self, ranks: np.ndarray) -> np.ndarray: ...


class RowsInMemory:
    def __init__(self, points: np.ndarray) -> None:
        self.points = points

    def read(self, start: int, stop: int) -> np.ndarray:
        return self.points[start:stop]

    def gather(self, ranks: np.ndarray) -> np.ndarray:
        found: np.ndarray = self.points[ranks]
        return found


class RowsOnDisk:
    """The same in a file, for clusters that do not fit the memory they may take."""

    def __init__(self, path: str, dim: int) -> None:
        self.path = path
        self.dim = dim

    def read(self, start: int, stop: int) -> np.ndarray:
        width = POINT_BYTES * self.dim
        count = (stop - start) * self.dim
        return np.fromfile(self.path, np.int32, count, offset=start * width).reshape(-1, self.dim)

    def gather(self, ranks: np.ndarray) -> np.ndarray:
        width = POINT_BYTES * self.dim
        file = os.open(self.path, os.O_RDONLY)
        try:
            data = b"".join(os.pread(file, width, int(rank) * width) for rank in ranks)
        finally:
            os.close(file)
        return np.frombuffer(data, np.int32).reshape(-1, self.dim)


def best_before(rows: Rows, count: int, dim: int, batch: int, room: int, device: Any) -> tuple[Any, Any]:
    """(rank of the most similar one before, cosine similarity to it) for each of ``count`` rows.

    The first row has none: -1 and NaN. Of equally similar ones the first ranked counts. ``batch`` rows are compared
    with as many at a time, and no more than about ``room`` bytes of them are held; neither changes the result.
    """
    torch = load_torch()
    on_device = free_bytes(device)
    room = room if on_device is None else min(room, on_device)
    held = max(1, room // (POINT_BYTES * dim) // batch) * batch
    best = np.full(count, -1, dtype=np.int64)
    for start in range(0, count, held):
        stop = min(start + held, count)
        mine = torch.from_numpy(rows.read(start, stop)).to(device)
        best[start:stop] = _best_of_held(rows, mine, start, stop, batch, device)
    similarity = np.full(count, np.nan)
    for start in range(1, count, COMPARED):
        stop = min(start + COMPARED, count)
        similarity[start:stop] = cosine(rows.read(start, stop), rows.gather(best[start:stop]))
    return best, similarity


def _best_of_held(rows: Rows, mine: Any, start: int, stop: int, batch: int, device: Any) -> np.ndarray:
    torch = load_torch()
    top = torch.full((stop - start,), -float("inf"), dtype=torch.float64, device=device)
    where = torch.full((stop - start,), -1, dtype=torch.int64, device=device)
    for a in range(0, stop, batch):
        b = min(a + batch, stop)
        others = mine[a - start : b - start] if a >= start else torch.from_numpy(rows.read(a, b)).to(device)
        right = _Parts(others)
        for i in range(max(a, start), stop, batch):
            part = slice(i - start, min(i + batch, stop) - start)
            values = right.products(_Parts(mine[part]))
            if i == a:
                later = torch.ones(values.shape, dtype=torch.bool, device=device).triu()
                values.masked_fill_(later, -float("inf"))
            value, index = values.max(dim=1)  # of equal ones the first
            better = value > top[part]
            top[part] = torch.where(better, value, top[part])
            where[part] = torch.where(better, index + a, where[part])
    found: np.ndarray = where.cpu().numpy()
    return found


class _Parts:
    """Points split into coarse parts and rests, as float32."""

    def __init__(self, points: Any) -> None:
        torch = load_torch()
        self.steps = fine_steps(points.shape[1])
        coarse = torch.div(points + self.steps // 2, self.steps, rounding_mode="floor")
        self.coarse = coarse.to(torch.float32)
        self.rest = (points - coarse * self.steps).to(torch.float32)

    def products(self, left: _Parts) -> Any:
        """Dot products of each row of ``left`` with each of these, in fine steps, as whole numbers in float64.

        Without those of rests and rests, which are below the millionths that the grid leaves open.
        """
        torch = load_torch()
        whole = (left.coarse @ self.coarse.T).to(torch.float64)
        whole *= self.steps
        both = torch.cat([left.coarse, left.rest], dim=1) @ torch.cat([self.rest, self.coarse], dim=1).T
        whole += both
        return whole
