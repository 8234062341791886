"""The most similar document of a higher rank, for each document of a cluster."""

from __future__ import annotations

import os
from typing import Protocol

from gristmill.lazy import np
from gristmill.stages.deduplication.semantic.arithmetic import Arithmetic
from gristmill.stages.deduplication.semantic.fixed_point import cosine
from gristmill.stages.deduplication.semantic.store import POINT_BYTES

COMPARED = 4096
"""Pairs whose exact similarity is computed at a time."""


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
    """The same in a file, for clusters that do not fit in memory."""

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


def best_before(
    rows: Rows, count: int, dim: int, batch: int, memory: int, compute: Arithmetic
) -> tuple[np.ndarray, np.ndarray]:
    """Return for each of ``count`` rows the rank of the most similar row before it, and their cosine similarity.

    The first row has none: -1 and NaN. Of equally similar rows the first counts. ``batch`` rows are compared with as
    many at a time, and about ``memory`` bytes of them are held; neither changes the result.
    """
    on_device = compute.free_bytes()
    memory = memory if on_device is None else min(memory, on_device)
    held = max(1, memory // (POINT_BYTES * dim) // batch) * batch
    best = np.full(count, -1, dtype=np.int64)
    for start in range(0, count, held):
        stop = min(start + held, count)
        best[start:stop] = _best_of_held(rows, start, stop, dim, batch, compute)
    similarity = np.full(count, np.nan)
    for start in range(1, count, COMPARED):
        stop = min(start + COMPARED, count)
        similarity[start:stop] = cosine(rows.read(start, stop), rows.gather(best[start:stop]))
    return best, similarity


def _best_of_held(rows: Rows, start: int, stop: int, dim: int, batch: int, compute: Arithmetic) -> np.ndarray:
    mine = compute.hold(rows.read(start, stop))
    best = compute.best(stop - start, dim)
    for a in range(0, stop, batch):
        b = min(a + batch, stop)
        others = mine[a - start : b - start] if a >= start else compute.hold(rows.read(a, b))
        for i in range(max(a, start), stop, batch):
            place = i - start
            best.compare(place, mine[place : place + batch], a, others, only_before=i == a)
    return best.found()
