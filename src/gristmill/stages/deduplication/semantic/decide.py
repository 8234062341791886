"""The decision of `SemanticDeduplication` between the two phases of a pipeline."""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from gristmill.stages.barrier import BarrierContext
from gristmill.stages.core import ProcessingStage
from gristmill.stages.deduplication import decisions, records
from gristmill.stages.deduplication.link import STAYS
from gristmill.stages.deduplication.match import read_array, write_array
from gristmill.stages.deduplication.parts import IDENT, SCORE, Parts
from gristmill.stages.deduplication.records import ROW, Array, PartRecords, RecordTask
from gristmill.stages.deduplication.semantic.arguments import default_clusters
from gristmill.stages.deduplication.semantic.cluster import (
    AssignClustersStage,
    KMeansStage,
    SortByClusterStage,
    count_clusters,
)
from gristmill.stages.deduplication.semantic.columns import LENGTH
from gristmill.stages.deduplication.semantic.embeddings import SOURCE
from gristmill.stages.deduplication.semantic.identify import NUMBERS, kept_rows
from gristmill.stages.deduplication.semantic.pairwise_stage import PairwiseStage
from gristmill.stages.deduplication.semantic.parts import cluster_ranges, settled
from gristmill.stages.deduplication.semantic.stage import BAD, DIM, POINT, SemanticDeduplication
from gristmill.stages.deduplication.semantic.store import POINT_BYTES, EmbeddingStore
from gristmill.stages.deduplication.semantic.tasks import ClusterRange, EmbeddingPart
from gristmill.storage import Folder
from gristmill.tasks import EmptyTask
from gristmill.tasks.arrow import int_array, number_array, one_array

if TYPE_CHECKING:
    from gristmill.tasks import Task

SIMILAR, SIMILARITY, CLUSTER = "similar.npy", "similarity.npy", "cluster.npy"
"""For each document the most similar one that is ranked before it, their similarity, and its cluster."""
NONE = -1


class StorePointsStage(ProcessingStage[EmbeddingPart, EmbeddingPart], builtin=True):
    """Puts the embeddings among the keys of a part into the store. The id of a document is its number."""

    def __init__(self, parts: Parts, store: EmbeddingStore, dim: int) -> None:
        self.name = "store embeddings"
        self.parts = parts
        self.store = store
        self.dim = dim

    def process(self, task: EmbeddingPart) -> EmbeddingPart:
        number = int(task.data)
        table = self.parts.table(number, [POINT, DIM, SCORE])
        rows = np.flatnonzero(table.column(DIM).to_numpy() == self.dim)
        points = b"".join(table.column(POINT).take(int_array(rows)).to_pylist())
        self.store.write(self.store.part_file(task.data, "points"), points)
        scores = np.ascontiguousarray(table.column(SCORE).to_numpy()[rows], dtype=np.float64)
        self.store.write(self.store.part_file(task.data, "scores"), scores)
        documents = int_array(rows + self.parts.starts[number])
        ids = pa.table({"id": documents, SOURCE: documents})
        sink = pa.BufferOutputStream()
        with pa.ipc.new_file(sink, ids.schema) as writer:
            writer.write_table(ids)
        self.store.write(self.store.part_file(task.data, "arrow"), sink.getvalue())
        types = {field.name: str(field.type) for field in ids.schema}
        return EmbeddingPart(data=task.data, rows=len(rows), types=types)


class SemanticRecords(PartRecords):
    """Records of documents, each with its most similar one."""

    def _table(self, gone: Array, stays: Array, done: RecordTask) -> pa.Table:
        parts = self.parts
        similar = np.asarray(read_array(parts.folder, SIMILAR)[gone])
        made = self._ids(parts.take(gone, self.idents), parts.take(stays, self.idents))
        made["similar"] = parts.take(similar, [IDENT]).column(IDENT)
        made["similarity"] = number_array(np.asarray(read_array(parts.folder, SIMILARITY)[gone]))
        made["cluster"] = int_array(np.asarray(read_array(parts.folder, CLUSTER)[gone]))
        made[ROW] = int_array(parts.place(gone)[1])
        return pa.table(made)


def decide(stage: SemanticDeduplication, context: BarrierContext) -> None:
    """Decide which documents are removed, and write their records."""
    parts = Parts.found(context.folder)
    lengths = _lengths(parts)
    dim = stage.embedding_dim or _most_frequent(lengths)
    rows = int((lengths == dim).sum()) if dim else 0
    if rows:
        with _store(stage, context) as (store, here):
            removed = _Comparison(stage, context, parts, store, here).remove(dim, rows)
    else:
        decisions.write_counts(context, parts)
        removed = f"{stage.name}: no document has an embedding"
    context.notes.insert(0, removed)
    if rows < parts.documents:
        context.notes.append(_unusable(stage, parts, lengths, dim))


def _lengths(parts: Parts) -> Array:
    """The lengths of the embeddings of all documents, 0 where there is none."""
    found = [numbers for _, numbers in parts.all_numbers(DIM)]
    return np.concatenate(found) if found else np.zeros(0, np.int64)


def _most_frequent(lengths: Array) -> int:
    """The most frequent length, of equally frequent ones the smallest; 0 if no document has an embedding."""
    found, counts = np.unique(lengths[lengths > 0], return_counts=True)
    return int(found[counts.argmax()]) if len(found) else 0


def _unusable(stage: SemanticDeduplication, parts: Parts, lengths: Array, dim: int) -> str:
    reasons = Counter({LENGTH: int(((lengths > 0) & (lengths != dim)).sum())})
    for part in range(len(parts)):
        for counted in pc.value_counts(one_array(parts.table(part, [BAD]).column(0)).drop_null()).to_pylist():
            reasons[counted["values"]] += counted["counts"]
    listed = ", ".join(f"{count:,} {reason}" for reason, count in sorted(reasons.items()) if count)
    return f"{stage.name}: {reasons.total():,} documents without a usable embedding are kept: {listed}"


@contextmanager
def _store(stage: SemanticDeduplication, context: BarrierContext) -> Iterator[tuple[EmbeddingStore, bool]]:
    """An empty folder for embeddings by cluster, and whether only the driver sees it. It is removed afterwards."""
    if stage.cache_path is not None:
        # other outputs may use the folder, too
        own = blake2b(context.folder.url.encode(), digest_size=8).hexdigest()
        path = Folder(stage.cache_path).path(f"kmeans_results-{own}")
    elif context.folder.is_local:
        path = context.folder.path("kmeans_results")
    else:
        with tempfile.TemporaryDirectory(prefix="gristmill-clusters-") as path:
            yield EmbeddingStore(path), True
        return
    shutil.rmtree(path, ignore_errors=True)
    try:
        yield EmbeddingStore(path), False
    finally:
        shutil.rmtree(path, ignore_errors=True)


class _Comparison:
    """K-means over the embeddings, then similarities inside each cluster."""

    def __init__(
        self, stage: SemanticDeduplication, context: BarrierContext, parts: Parts, store: EmbeddingStore, here: bool
    ) -> None:
        self.stage = stage
        self.context = context
        self.parts = parts
        self.store = store
        self.here = here

    def remove(self, dim: int, rows: int) -> str:
        """Write the records of duplicates; return the outcome in a line."""
        clusters = self._cluster(dim, rows)
        stays, chained = self._stays(rows)
        write_array(self.context.folder, STAYS, stays)
        per_time = records.rows_at_once(self.context.memory, self.context.workers)
        own_ids = self.stage.id_field is not None
        writing = SemanticRecords(self.parts, self.context.records, per_time, own_ids)
        tasks = records.tasks_for(self.parts, self.context.workers)
        done = self.context.run("records", writing, tasks, rows * 100)
        removed = sum(decisions.write_counts(self.context, self.parts, done).values())
        return (
            f"{self.stage.name}: {removed:,} of {self.parts.documents:,} documents are duplicates at eps "
            f"{self.stage.eps:g}, {chained:,} of them by way of another duplicate; {clusters:,} clusters of "
            f"{rows:,} embeddings of {dim} numbers"
        )

    def _run(self, name: str, stage: ProcessingStage[Any, Any], tasks: Sequence[Task[Any]], size: int) -> list[Any]:
        return self.context.run(name, stage, tasks, 0 if self.here else size)

    def _cluster(self, dim: int, rows: int) -> int:
        """Sort the embeddings by cluster; return the number of clusters that have some."""
        stage, store = self.stage, self.store
        size = rows * dim * POINT_BYTES
        tasks = [EmbeddingPart(data=str(number)) for number in range(len(self.parts))]
        found = self._run("store", StorePointsStage(self.parts, store, dim), tasks, size)
        parts = settled(store, found, dim)
        clusters = stage.n_clusters or default_clusters(rows)
        if clusters > rows:
            raise ValueError(
                f"{stage.name}: n_clusters is {clusters:,}, but there are {rows:,} embeddings. Leave n_clusters out, "
                "or start over with fewer."
            )
        fitting = KMeansStage(
            store.path,
            clusters,
            self.context.memory // 2,
            stage.fit_data_fraction,
            stage.max_iter,
            stage.tol,
            stage.random_state,
            stage.init,
        )
        (fitted,) = self._run("k-means", fitting, [EmptyTask()], size)
        self._run("assign", AssignClustersStage(store.path, stage.distance_metric), parts, size)
        edges = count_clusters(store, fitted.data[1])
        self._run("sort", SortByClusterStage(store.path), parts, size)
        store.drop_unsorted()
        return int((np.diff(edges) > 0).sum())

    def _stays(self, rows: int) -> tuple[Array, int]:
        """Return the survivor of each document, and how many duplicates are similar to another duplicate only."""
        store, stage = self.store, self.stage
        pairs = Folder(store.file("pairs"))
        memory = self.context.memory // 2 // max(1, self.context.workers)
        comparing = PairwiseStage(store.path, pairs.root, memory, stage.which_to_keep, stage.pairwise_batch_size)
        tasks = list(cluster_ranges(store.load("clusters.npy")))
        done: list[ClusterRange] = self._run("pairwise", comparing, tasks, rows * store.dim * POINT_BYTES)
        documents = self.parts.documents
        stays, similar = np.arange(documents), np.full(documents, NONE)
        similarity, cluster = np.zeros(documents), np.full(documents, NONE)
        chained = 0
        for task in done:
            if not task.files:
                continue
            table = pa.concat_tables([_read(pairs, name) for name in task.files])
            ids = table.column("id").to_numpy()
            kept, through = kept_rows(table, stage.eps)
            chained += through
            stays[ids] = np.where(kept >= 0, ids[np.maximum(kept, 0)], ids)
            similar[ids] = table.column("max_id").fill_null(NONE).to_numpy()
            similarity[ids] = table.column("cosine_sim_score").fill_null(0.0).to_numpy()
            cluster[ids] = table.column("cluster").to_numpy()
        for name, array in ((SIMILAR, similar), (SIMILARITY, similarity), (CLUSTER, cluster)):
            write_array(self.context.folder, name, array)
        return stays, chained


def _read(folder: Folder, name: str) -> pa.Table:
    with folder.open(name) as file:
        return pq.ParquetFile(file).read(columns=["id", "max_id", *NUMBERS])
