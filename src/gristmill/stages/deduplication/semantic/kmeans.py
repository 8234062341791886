"""K-means over embeddings on the coarse grid. All sums are exact: see `fixed_point`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from gristmill.lazy import np
from gristmill.stages.deduplication.semantic.arithmetic import Arithmetic
from gristmill.stages.deduplication.semantic.fixed_point import GRID

INIT_PER_CLUSTER = 16
"""Points per cluster among which k-means++ chooses: all would cost as much as many rounds of k-means."""
INITS = ("k-means++", "random")
HASHED = 1 << 16
"""Numbers that are hashed at a time."""


@dataclass(frozen=True, slots=True)
class Fitted:
    """The result of k-means."""

    centroids: np.ndarray
    """On the coarse grid, as int32."""
    iterations: int
    converged: bool


def mixed(numbers: np.ndarray, seed: int) -> np.ndarray:
    """Return a hash of each whole number, as uint64 (splitmix64): different numbers have different ones."""
    with np.errstate(over="ignore"):
        x = numbers.astype(np.uint64) + np.uint64((seed * 0x9E3779B97F4A7C15 + 0x632BE59BD9B4E019) % 2**64)
        x = (x + np.uint64(0x9E3779B97F4A7C15)).astype(np.uint64)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        found: np.ndarray = x ^ (x >> np.uint64(31))
    return found


def smallest(count: int, wanted: int, seed: int) -> np.uint64:
    """Return the hash that ``wanted`` of the numbers from 0 up to ``count`` do not exceed."""

    def hashes() -> Iterator[tuple[np.ndarray, np.ndarray]]:
        for at in range(0, count, HASHED):
            each = mixed(np.arange(at, min(at + HASHED, count)), seed)
            yield each, (each >> np.uint64(48)).astype(np.int64)

    totals = np.zeros(1 << 16, dtype=np.int64)
    for _, leading in hashes():
        totals += np.bincount(leading, minlength=len(totals))
    up_to = np.cumsum(totals)
    last = int(np.searchsorted(up_to, wanted))
    near = np.sort(np.concatenate([each[leading == last] for each, leading in hashes()]))
    found: np.uint64 = near[wanted - 1 - (up_to[last] - totals[last])]
    return found


def fit(
    points: np.ndarray, clusters: int, seed: int, max_iter: int, tol: float, init: str, compute: Arithmetic
) -> Fitted:
    """Return at most ``clusters`` centroids of int16 points on the coarse grid.

    Ends when the squares of the centroids' moves add up to ``tol`` (for embeddings of length one) or less, or after
    ``max_iter`` rounds. A centroid that loses all its points stays where it is.
    """
    clusters = min(clusters, len(points))
    start = plus_plus(points, clusters, seed, compute) if init == "k-means++" else _some(points, clusters, seed)
    free = compute.free_bytes()
    data = compute.hold(points) if free is None or points.nbytes <= free else points
    centroids = start.astype(np.int32)
    for iteration in range(1, max_iter + 1):
        moved = _round(data, centroids, compute)
        shift = float(((moved - centroids).astype(np.float64) ** 2).sum()) / GRID**2
        centroids = moved
        if shift <= tol:
            return Fitted(centroids, iteration, True)
    return Fitted(centroids, max_iter, False)


def _round(data: Any, centroids: np.ndarray, compute: Arithmetic) -> np.ndarray:
    """Move centroids to the mean of their nearest points; ``data`` is on the device, or sent block by block."""
    around = compute.nearest(centroids)
    for at in range(0, len(data), around.block):
        around.add(data[at : at + around.block])
    sums, counts = around.totals()
    means = np.rint(sums / np.maximum(counts, 1)[:, None]).astype(np.int32)
    moved: np.ndarray = np.where(counts[:, None] == 0, centroids, means)
    return moved


def _some(points: np.ndarray, count: int, seed: int) -> np.ndarray:
    """Return ``count`` random points, in random order."""
    order = np.argsort(mixed(np.arange(len(points)), seed + 1), kind="stable")[:count]
    found: np.ndarray = points[order]
    return found


def plus_plus(points: np.ndarray, clusters: int, seed: int, compute: Arithmetic) -> np.ndarray:
    """K-means++: draw each centroid with odds of its squared distance to those before it."""
    among = _some(points, min(len(points), INIT_PER_CLUSTER * clusters), seed)
    random = np.random.Generator(np.random.PCG64(seed))
    spread = compute.spread(among)
    chosen = [int(random.integers(len(among)))]
    for _ in range(1, clusters):
        total = spread.choose(chosen[-1])
        # all distances are 0: every point is a centroid already
        chosen.append(spread.find(int(random.integers(total))) if total else chosen[-1])
    found: np.ndarray = among[chosen]
    return found
