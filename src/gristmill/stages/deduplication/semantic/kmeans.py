"""K-means over embeddings on the coarse grid. All sums are exact: see `fixed_point`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gristmill.lazy import np
from gristmill.stages.deduplication.semantic.devices import free_bytes, load_torch
from gristmill.stages.deduplication.semantic.fixed_point import GRID

SCORE_BYTES = 64 << 20
"""For the distances of a block of points to all centroids; a GPU gets more, for speed only."""
GPU_SCORE_BYTES = 1 << 30
MAX_BLOCK = 1 << 16
INIT_PER_CLUSTER = 16
"""Points among which k-means++ chooses each centroid: all of them would cost as much as many rounds of k-means."""
INITS = ("k-means++", "random")


@dataclass(frozen=True, slots=True)
class Fitted:
    """Centroids, and how they came about."""

    centroids: np.ndarray
    """On the coarse grid, as int32."""
    iterations: int
    converged: bool


def mixed(numbers: np.ndarray, seed: int) -> np.ndarray:
    """A hash of each whole number, as uint64 (splitmix64)."""
    with np.errstate(over="ignore"):
        x = numbers.astype(np.uint64) + np.uint64((seed * 0x9E3779B97F4A7C15 + 0x632BE59BD9B4E019) % 2**64)
        x = (x + np.uint64(0x9E3779B97F4A7C15)).astype(np.uint64)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        found: np.ndarray = x ^ (x >> np.uint64(31))
    return found


class Centroids:
    """Centroids on a device, to which the nearest is found."""

    def __init__(self, centroids: np.ndarray, device: Any) -> None:
        torch = load_torch()
        self.device = device
        self.columns = torch.from_numpy(centroids.astype(np.float32).T.copy()).to(device)
        self.squares = (self.columns * self.columns).sum(dim=0)
        room = GPU_SCORE_BYTES if device.type == "cuda" else SCORE_BYTES
        self.block = max(1, min(MAX_BLOCK, room // (8 * len(centroids))))
        """So many points at a time."""

    def nearest(self, points: Any) -> Any:
        """The number of the nearest centroid of each row of a float32 tensor; of equally near ones the first."""
        scores = points @ self.columns
        scores *= 2
        scores -= self.squares
        return scores.argmax(dim=1)


def fit(
    points: np.ndarray, clusters: int, seed: int, max_iter: int, tol: float, init: str, device: Any, start: Any = None
) -> Fitted:
    """Centroids of int16 points on the coarse grid, ``clusters`` of them at most.

    Ends when the squares of the centroids' moves add up to ``tol`` (for embeddings of length one) or less, or after
    ``max_iter`` rounds. A centroid that loses all its points stays where it is. ``start`` are centroids to start from.
    """
    torch = load_torch()
    clusters = min(clusters, len(points))
    room = free_bytes(device)
    data = torch.from_numpy(points)
    if room is None or data.nbytes <= room:  # else blocks are sent to the device in each round
        data = data.to(device)
    if start is None:
        start = plus_plus(data, clusters, seed, device) if init == "k-means++" else _some(data, clusters, seed)
    centroids = start.astype(np.int32)
    for iteration in range(1, max_iter + 1):
        moved = _round(data, centroids, device)
        shift = float(((moved - centroids).astype(np.float64) ** 2).sum()) / GRID**2
        centroids = moved
        if shift <= tol:
            return Fitted(centroids, iteration, True)
    return Fitted(centroids, max_iter, False)


def _round(data: Any, centroids: np.ndarray, device: Any) -> np.ndarray:
    torch = load_torch()
    around = Centroids(centroids, device)
    sums = torch.zeros(centroids.shape, dtype=torch.float64, device=device)
    counts = torch.zeros(len(centroids), dtype=torch.int64, device=device)
    for at in range(0, len(data), around.block):
        block = data[at : at + around.block].to(device).to(torch.float32)
        labels = around.nearest(block)
        sums.index_add_(0, labels, block.to(torch.float64))
        counts += torch.bincount(labels, minlength=len(centroids))
    means = sums.cpu().numpy() / np.maximum(counts.cpu().numpy(), 1)[:, None]
    lonely = (counts == 0).cpu().numpy()[:, None]
    moved: np.ndarray = np.where(lonely, centroids, np.rint(means).astype(np.int32))
    return moved


def _some(data: Any, count: int, seed: int) -> np.ndarray:
    """``count`` of the points by chance, in the order of chance."""
    order = np.argsort(mixed(np.arange(len(data)), seed + 1), kind="stable")[:count]
    found: np.ndarray = data[load_torch().from_numpy(order.astype(np.int64)).to(data.device)].cpu().numpy()
    return found


def plus_plus(data: Any, clusters: int, seed: int, device: Any) -> np.ndarray:
    """K-means++: each centroid a point drawn with the odds of its squared distance to those before it."""
    torch = load_torch()
    points = _some(data, min(len(data), INIT_PER_CLUSTER * clusters), seed)
    chance = np.random.Generator(np.random.PCG64(seed))
    rows = torch.from_numpy(points).to(device).to(torch.float32)
    lengths = (rows * rows).sum(dim=1)
    chosen = [int(chance.integers(len(points)))]
    nearest = torch.full_like(lengths, float("inf"))
    for _ in range(1, clusters):
        last = rows[chosen[-1]]
        nearest = torch.minimum(nearest, lengths - 2 * (rows @ last) + lengths[chosen[-1]])
        odds = nearest.to(torch.int64).cumsum(dim=0)
        total = int(odds[-1])
        drawn = int(chance.integers(total)) if total else 0  # all points are centroids already: any will do
        chosen.append(int(torch.searchsorted(odds, drawn, right=True)) if total else chosen[-1])
    found: np.ndarray = points[chosen]
    return found
