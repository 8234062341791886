"""K-means as stages: find centroids, assign documents to them, sort documents by cluster."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cached_property

from gristmill.lazy import np
from gristmill.stages.core import ProcessingStage
from gristmill.stages.deduplication.semantic import kmeans
from gristmill.stages.deduplication.semantic.arithmetic import OnDevice
from gristmill.stages.deduplication.semantic.fixed_point import GRID, coarse, fine_steps, squares
from gristmill.stages.deduplication.semantic.store import KEY, KEY_BYTES, POINT_BYTES, EmbeddingStore
from gristmill.stages.deduplication.semantic.tasks import ClusterRange, EmbeddingPart
from gristmill.stages.registry import builtin_internal
from gristmill.tasks import EmptyTask

STEP = 4096
"""Points that are read at a time."""
COARSE_BYTES = 2


def sampled(store: EmbeddingStore, most: int, seed: int) -> tuple[np.ndarray, bool]:
    """Return at most ``most`` coarse points to fit k-means on, and whether they are a sample.

    A sample has the points with the smallest hashes: it depends on rows and seed only.
    """
    rows, dim = store.rows, store.dim
    is_sample = rows > most
    last = kmeans.smallest(rows, most, seed) if is_sample else None
    points = np.empty((min(rows, most), dim), dtype=np.int16)
    filled = 0
    for part in store.parts:
        for at, block in store.points_of(part, STEP):
            if last is not None:
                block = block[kmeans.mixed(np.arange(part.start + at, part.start + at + len(block)), seed) <= last]
            points[filled : filled + len(block)] = coarse(block)
            filled += len(block)
    return points, is_sample


@builtin_internal
@dataclass(eq=False, repr=False)
class KMeansStage(OnDevice, ProcessingStage[EmptyTask, ClusterRange]):
    """Finds the centroids of all embeddings in the store, or of a random sample that fits ``memory`` bytes.

    ``fit_data_fraction`` makes the sample smaller, as long as k-means++ has enough points to choose from.
    """

    fan_out = False

    store_path: str
    n_clusters: int
    memory: int
    fit_data_fraction: float | None = None
    max_iter: int = 300
    tol: float = 1e-4
    random_state: int = 42
    init: str = "k-means++"
    device: str | None = "cpu"

    def __post_init__(self) -> None:
        self.store = EmbeddingStore(self.store_path)

    def num_workers(self) -> int | None:
        return 1

    def process(self, task: EmptyTask) -> ClusterRange:
        points, is_sample = sampled(self.store, self._sample_size(), self.random_state)
        args = (self.n_clusters, self.random_state, self.max_iter, self.tol, self.init)
        fitted = kmeans.fit(points, *args, self.arithmetic)
        self.store.save("centroids.npy", fitted.centroids)
        found = {
            "fit_rows": len(points),
            "fit_is_sample": is_sample,
            "iterations": fitted.iterations,
            "converged": fitted.converged,
            "device": self.arithmetic.name,
            "gpu_peak": self.arithmetic.peak_bytes(),
        }
        return ClusterRange(data=(0, len(fitted.centroids)), rows=self.store.rows, found=found)

    def _sample_size(self) -> int:
        most = self.memory // (COARSE_BYTES * self.store.dim)
        if self.fit_data_fraction is not None:
            wished = int(self.store.rows * self.fit_data_fraction)
            most = min(most, max(wished, kmeans.INIT_PER_CLUSTER * self.n_clusters))
        return max(most, self.n_clusters)


@builtin_internal
@dataclass(eq=False, repr=False)
class AssignClustersStage(OnDevice, ProcessingStage[EmbeddingPart, EmbeddingPart]):
    """Assigns each document of a part to its nearest centroid, with the distance to it ("cosine" or "l2")."""

    store_path: str
    distance_metric: str = "cosine"
    device: str | None = "cpu"

    split_on_failure = False

    def __post_init__(self) -> None:
        self.store = EmbeddingStore(self.store_path)

    @cached_property
    def centroids(self) -> np.ndarray:
        return self.store.load("centroids.npy")

    def process(self, task: EmbeddingPart) -> EmbeddingPart:
        part = next(part for part in self.store.parts if part.task_id == task.data)
        around = self.arithmetic.nearest(self.centroids)
        labels = np.empty(part.rows, dtype=np.int32)
        distances = np.empty(part.rows)
        for at, points in self.store.points_of(part, min(STEP, around.block)):
            nearest = around.labels(coarse(points))
            labels[at : at + len(points)] = nearest
            distances[at : at + len(points)] = distance(points, self.centroids[nearest], self.distance_metric)
        self.store.write(self.store.part_file(part.task_id, "labels"), labels)
        self.store.write(self.store.part_file(part.task_id, "distances"), distances)
        return task


def distance(points: np.ndarray, centroids: np.ndarray, metric: str) -> np.ndarray:
    """Return the distance of each point on the grid to the centroid of the same row on the coarse grid."""
    steps = fine_steps(points.shape[1])
    dot = np.einsum("ij,ij->i", points.astype(np.int64), centroids.astype(np.int64))
    if metric == "l2":
        square = squares(points) - 2 * steps * dot + steps * steps * squares(centroids)
        found: np.ndarray = np.sqrt(square.astype(np.float64)) / (GRID * steps)
        return found
    lengths = squares(points).astype(np.float64) * squares(centroids).astype(np.float64)
    cosines: np.ndarray = 1.0 - np.clip(dot / np.sqrt(np.maximum(lengths, 1.0)), -1.0, 1.0)
    return cosines


def count_clusters(store: EmbeddingStore, clusters: int) -> np.ndarray:
    """Write where each cluster begins, and where the documents of each part go, in the order of the input."""
    totals = np.zeros(clusters, dtype=np.int64)
    counted = []
    for part in store.parts:
        labels = np.fromfile(store.part_file(part.task_id, "labels"), np.int32)
        counts = np.bincount(labels, minlength=clusters).astype(np.int64)
        store.write(store.part_file(part.task_id, "starts"), totals)  # those before it, for now
        totals += counts
        counted.append(part)
    edges = np.zeros(clusters + 1, dtype=np.int64)
    np.cumsum(totals, out=edges[1:])
    for part in counted:
        path = store.part_file(part.task_id, "starts")
        store.write(path, np.fromfile(path, np.int64) + edges[:-1])
    store.save("clusters.npy", edges)
    for name, width in (("points.bin", POINT_BYTES * store.dim), ("keys.bin", KEY_BYTES)):
        with open(store.file(name), "wb") as file:
            file.truncate(int(edges[-1]) * width)
    return edges


@builtin_internal
class SortByClusterStage(ProcessingStage[EmbeddingPart, EmbeddingPart]):
    """Copies the documents of a part to their clusters."""

    split_on_failure = False

    def __init__(self, store_path: str) -> None:
        self.store = EmbeddingStore(store_path)

    def process(self, task: EmbeddingPart) -> EmbeddingPart:
        store, width = self.store, POINT_BYTES * self.store.dim
        part = next(part for part in store.parts if part.task_id == task.data)
        labels = np.fromfile(store.part_file(part.task_id, "labels"), np.int32)
        keys = np.empty(part.rows, dtype=KEY)
        keys["row"] = np.arange(part.start, part.start + part.rows)
        keys["distance"] = np.fromfile(store.part_file(part.task_id, "distances"))
        keys["score"] = np.fromfile(store.part_file(part.task_id, "scores"))
        cursor = np.fromfile(store.part_file(part.task_id, "starts"), np.int64)
        files = [os.open(store.file(name), os.O_WRONLY) for name in ("points.bin", "keys.bin")]
        try:
            for at, points in store.points_of(part, STEP):
                of_block = labels[at : at + len(points)]
                order = np.argsort(of_block, kind="stable")
                clusters, first = np.unique(of_block[order], return_index=True)
                for cluster, a, b in zip(clusters, first, [*first[1:], len(points)], strict=True):
                    where, rows = int(cursor[cluster]), order[a:b]
                    write_at(files[0], points[rows].tobytes(), where * width)
                    write_at(files[1], keys[at + rows].tobytes(), where * KEY_BYTES)
                    cursor[cluster] += b - a
        finally:
            for file in files:
                os.close(file)
        return task


def write_at(file: int, data: bytes, offset: int) -> None:
    """Write all of ``data`` at a place of a file."""
    while data:
        done = os.pwrite(file, data, offset)
        data, offset = data[done:], offset + done
