"""Twice the embeddings take no more memory."""

import subprocess
import sys

SCRIPT = """
import resource, sys
import numpy as np
import pyarrow, pyarrow.parquet
from gristmill.stages.deduplication.semantic import (
    AssignClustersStage, IdentifyDuplicatesStage, KMeansStage, PairwiseStage, SortByClusterStage
)
from gristmill.stages.deduplication.semantic.cluster import count_clusters
from gristmill.stages.deduplication.semantic.fixed_point import to_grid
from gristmill.stages.deduplication.semantic.store import StoredPart, EmbeddingStore
from gristmill.stages.deduplication.semantic.tasks import ClusterRange, EmbeddingPart
from gristmill.tasks import EmptyTask

folder, count, dim, clusters, memory = sys.argv[1], int(sys.argv[2]), 256, 20, 4 << 20
store, rows = EmbeddingStore(folder), 5000
rng = np.random.default_rng(0)
centres = rng.normal(size=(clusters, dim))
parts = []
for number in range(count // rows):
    name = str(number)
    points = to_grid(centres[rng.integers(clusters, size=rows)] + rng.normal(size=(rows, dim)))
    store.write(store.part_file(name, "points"), points)
    store.write(store.part_file(name, "scores"), np.zeros(rows))
    ids = pyarrow.array([f"{name}-{i}" for i in range(rows)])
    table = pyarrow.table({"id": ids, "source_id": ids})
    with pyarrow.ipc.new_file(store.part_file(name, "arrow"), table.schema) as file:
        file.write_table(table)
    parts.append(StoredPart(name, rows, number * rows))
store.write_parts(parts, dim, [])
del points

fit = KMeansStage(folder, clusters, memory, max_iter=3).process(EmptyTask())
tasks = [EmbeddingPart(data=part.task_id, rows=part.rows) for part in parts]
for task in tasks:
    AssignClustersStage(folder).process(task)
edges = count_clusters(store, clusters)
for task in tasks:
    SortByClusterStage(folder).process(task)
pairwise = PairwiseStage(folder, folder + "/pairs", memory)
identify = IdentifyDuplicatesStage(folder, folder + "/pairs", folder + "/duplicates", 0.1)
for cluster in range(clusters):
    pairs = pairwise.process(ClusterRange(data=(cluster, cluster + 1)))
    identify.process(pairs)
print(fit.found["fit_is_sample"], resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)
"""


def peak_mib(folder, count):
    command = [sys.executable, "-c", SCRIPT, str(folder), str(count)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    is_sample, peak = done.stdout.split()
    assert is_sample == "True"
    return int(peak)


def test_twice_the_embeddings_take_no_more_memory(tmp_path):
    once, twice = peak_mib(tmp_path / "1", 50_000), peak_mib(tmp_path / "2", 100_000)
    # 50 MiB more of embeddings; clusters are larger than there is memory for, both times
    assert twice < once + 20, f"{once} MiB for 50,000 embeddings, {twice} MiB for 100,000"
