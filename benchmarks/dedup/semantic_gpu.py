"""Semantic deduplication on a GPU: time of each step, agreement with the CPU, memory against the limit.

    PYTHONPATH=src python benchmarks/dedup/semantic_gpu.py --rows 2000000 --clusters 2000 --out results.json

Makes ``--rows`` embeddings in groups, a tenth of them near copies of others, and takes them through the stages in this
process, one worker's part of the work. Needs numpy, pyarrow and torch. ``--device cpu`` does the same without a GPU.
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from gristmill.sizes import parse_size
from gristmill.stages.deduplication.semantic import (
    AssignClustersStage,
    KMeansStage,
    PairwiseStage,
    SortByClusterStage,
    kmeans,
)
from gristmill.stages.deduplication.semantic.arithmetic import arithmetic
from gristmill.stages.deduplication.semantic.cluster import count_clusters, sampled
from gristmill.stages.deduplication.semantic.embeddings import STEP
from gristmill.stages.deduplication.semantic.fixed_point import to_grid
from gristmill.stages.deduplication.semantic.pairwise import RowsInMemory, best_before
from gristmill.stages.deduplication.semantic.store import EmbeddingStore, StoredPart, read_points
from gristmill.stages.deduplication.semantic.tasks import ClusterRange, EmbeddingPart
from gristmill.tasks import EmptyTask

PART = 20_000
COPIES = PART // 10
"""Rows at the end of each part that are near copies of the first ones of the part before."""


def vectors_of(part: int, dim: int, centres: np.ndarray) -> np.ndarray:
    rng = np.random.default_rng(1000 + part)
    rows = centres[rng.integers(len(centres), size=PART)]
    rows += rng.standard_normal((PART, dim), dtype=np.float32)
    return rows


def make(store: EmbeddingStore, rows: int, dim: int, groups: int, noise: float) -> list[StoredPart]:
    centres = np.random.default_rng(0).standard_normal((groups, dim), dtype=np.float32)
    parts = []
    before = None
    for number in range(rows // PART):
        vectors = vectors_of(number, dim, centres)
        if before is not None:
            rng = np.random.default_rng(2000 + number)
            vectors[-COPIES:] = before + noise * rng.standard_normal((COPIES, dim), dtype=np.float32)
        before = vectors[:COPIES].copy()
        points = np.empty((PART, dim), dtype=np.int32)
        for at in range(0, PART, STEP):
            points[at : at + STEP] = to_grid(vectors[at : at + STEP])
        name = str(number)
        store.write(store.part_file(name, "points"), points)
        store.write(store.part_file(name, "scores"), np.zeros(PART))
        ids = pa.array(np.arange(number * PART, (number + 1) * PART))
        table = pa.table({"id": ids, "source_id": ids.cast(pa.string())})
        with pa.ipc.new_file(store.part_file(name, "arrow"), table.schema) as file:
            file.write_table(table)
        parts.append(StoredPart(name, PART, number * PART))
    store.write_parts(parts, dim, [])
    return parts


class Clock:
    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def __call__(self, name: str):
        start = time.perf_counter()
        yield
        self.seconds[name] = round(time.perf_counter() - start, 3)
        print(f"{name}: {self.seconds[name]} s", flush=True)


def recall(folder: Path, rows: int, eps: float) -> tuple[int, float]:
    """How many duplicates there are, and the share of near copies that are duplicates or have one as theirs."""
    table = pa.concat_tables(
        [pq.read_table(file, columns=["id", "max_id", "cosine_sim_score"]) for file in folder.iterdir()]
    )
    similar = table.column("cosine_sim_score").fill_null(-1.0).to_numpy() >= 1 - eps
    ids, others = table.column("id").to_numpy()[similar], table.column("max_id").fill_null(-1).to_numpy()[similar]
    found = set(zip(ids.tolist(), others.tolist(), strict=True))
    copies = [(p * PART + PART - COPIES + i, (p - 1) * PART + i) for p in range(1, rows // PART) for i in range(COPIES)]
    hit = sum((one, other) in found or (other, one) in found for one, other in copies)
    return int(similar.sum()), hit / max(1, len(copies))


def straightforward(store: EmbeddingStore, edges: np.ndarray, device: str) -> float:
    """Seconds for the same pairs in the plain way: float32, each cluster's matrix at once, no order of ranks."""
    import torch

    start = time.perf_counter()
    for cluster in range(len(edges) - 1):
        a, b = int(edges[cluster]), int(edges[cluster + 1])
        if b - a < 2 or b - a > 60_000:
            continue
        points = torch.from_numpy(read_points(store.file("points.bin"), a, b, store.dim)).to(device).float()
        points = torch.nn.functional.normalize(points, dim=1)
        values, index = torch.triu(points @ points.T, diagonal=1).max(dim=0)
        values.cpu(), index.cpu()
    return round(time.perf_counter() - start, 3)


def agreement(store: EmbeddingStore, edges: np.ndarray, device: str) -> dict[str, bool]:
    """Whether a CPU finds the same, bit for bit, on a part of the data."""
    here, there = arithmetic("cpu"), arithmetic(device)
    points, _ = sampled(store, 40_000, seed=7)
    fits = [kmeans.fit(points, 64, 7, 5, 0.0, "k-means++", compute) for compute in (here, there)]
    same = {"centroids": bool(np.array_equal(fits[0].centroids, fits[1].centroids))}
    by_size = np.argsort(np.diff(edges))
    for name, cluster in (("largest cluster", by_size[-1]), ("middle cluster", by_size[len(by_size) // 2])):
        a = int(edges[cluster])
        b = min(int(edges[cluster + 1]), a + 6000)
        rows = RowsInMemory(read_points(store.file("points.bin"), a, b, store.dim))
        one = best_before(rows, b - a, store.dim, 1024, 1 << 40, here)
        other = best_before(rows, b - a, store.dim, 700, 1 << 40, there)
        same[name] = bool(np.array_equal(one[0], other[0]) and np.array_equal(one[1], other[1], equal_nan=True))
    return same


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--dim", type=int, default=384)
    parser.add_argument("--clusters", type=int, default=1000)
    parser.add_argument("--max-iter", type=int, default=20)
    parser.add_argument("--eps", type=float, default=0.05)
    parser.add_argument("--noise", type=float, default=0.15)
    parser.add_argument("--memory-limit", default="4GB")
    parser.add_argument("--batch", type=int, default=1024)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--folder", help="where to work; a temporary folder by default")
    parser.add_argument("--out", help="a file for the results, as JSON")
    given = parser.parse_args()
    folder = Path(given.folder or tempfile.mkdtemp(prefix="semantic-"))
    store, where, clock = EmbeddingStore(str(folder)), str(folder), Clock()
    limit = parse_size(given.memory_limit)
    compute = arithmetic(given.device)
    with clock("make the data"):
        parts = make(store, given.rows, given.dim, given.clusters, given.noise)
    with clock("warm up"):
        kmeans.fit(np.ones((1000, given.dim), dtype=np.int16), 2, 0, 1, 0.0, "random", compute)
    with clock("k-means"):
        stage = KMeansStage(where, given.clusters, limit // 2, max_iter=given.max_iter, device=given.device)
        fitted = stage.process(EmptyTask())
    tasks = [EmbeddingPart(data=part.task_id, rows=part.rows) for part in parts]
    with clock("assign"):
        assign = AssignClustersStage(where, device=given.device)
        for task in tasks:
            assign.process(task)
    with clock("sort"):
        edges = count_clusters(store, fitted.data[1])
        sort = SortByClusterStage(where)
        for task in tasks:
            sort.process(task)
    with clock("pairwise"):
        pairwise = PairwiseStage(where, f"{where}/pairs", limit // 2, "hard", given.batch, given.device)
        step = 32
        for first in range(0, len(edges) - 1, step):
            pairwise.process(ClusterRange(data=(first, min(first + step, len(edges) - 1))))
    duplicates, found = recall(folder / "pairs", given.rows, given.eps)
    sizes = np.diff(edges)
    pairs = float((sizes.astype(np.float64) * (sizes - 1) / 2).sum())
    results = {
        "rows": given.rows,
        "dim": given.dim,
        "clusters": int((sizes > 0).sum()),
        "largest cluster": int(sizes.max()),
        "k-means": fitted.found,
        "duplicates": duplicates,
        "near copies found": round(found, 5),
        "pairs per second": round(pairs / clock.seconds["pairwise"]),
        "memory limit": limit,
        "peak GPU bytes": compute.peak_bytes(),
        "seconds": clock.seconds,
        "same as on a CPU": agreement(store, edges, given.device),
    }
    if given.device == "cuda":
        results["plain float32 pairwise, seconds"] = straightforward(store, edges, given.device)
    text = json.dumps(results, indent=2)
    print(text)
    if given.out:
        Path(given.out).write_text(text + "\n")
    if given.folder is None:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
