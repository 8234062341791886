"""The most similar document of a higher rank, for every document of some clusters."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from gristmill.lazy import np
from gristmill.stages.core import ProcessingStage
from gristmill.stages.deduplication.semantic.arithmetic import OnDevice
from gristmill.stages.deduplication.semantic.cluster import write_at
from gristmill.stages.deduplication.semantic.embeddings import SOURCE
from gristmill.stages.deduplication.semantic.pairwise import Rows, RowsInMemory, RowsOnDisk, best_before
from gristmill.stages.deduplication.semantic.ranking import ranked
from gristmill.stages.deduplication.semantic.store import (
    KEY,
    KEY_BYTES,
    POINT_BYTES,
    RANKED,
    EmbeddingStore,
    read_points,
)
from gristmill.stages.deduplication.semantic.tasks import ClusterRange
from gristmill.stages.registry import builtin_internal
from gristmill.storage import Folder

if TYPE_CHECKING:
    import pyarrow as pa

ROWS_PER_FILE = 1 << 18
"""Rows of a result file."""
STEP = 4096
RECORDS_NAME = re.compile(r"clusters-\d{8,}-\d{8,}\.\d{5,}\.parquet")
"""The pattern of `file_name`."""


def file_name(task: ClusterRange, number: int) -> str:
    """Return the name of a result file: sorted by name, files are in the order of clusters and ranks."""
    first, stop = task.data
    return f"clusters-{first:08d}-{stop - 1:08d}.{number:05d}.parquet"


def parquet_bytes(table: pa.Table) -> Any:
    import pyarrow as pa
    import pyarrow.parquet as pq

    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="zstd")
    return sink.getvalue()


@builtin_internal
@dataclass(eq=False, repr=False)
class PairwiseStage(OnDevice, ProcessingStage[ClusterRange, ClusterRange]):
    """Writes, for each document of the clusters, the most similar one that is ranked before it in its cluster.

    ``memory`` bytes are for embeddings; a cluster that takes more is compared part by part.
    """

    loads = ("pyarrow.parquet",)
    fan_out = False

    store_path: str
    output_path: str
    memory: int
    which_to_keep: str = "hard"
    pairwise_batch_size: int = 1024
    device: str | None = "cpu"
    storage_options: dict[str, Any] | None = None

    def __post_init__(self) -> None:
        self.store = EmbeddingStore(self.store_path)
        self.output = Folder(self.output_path, self.storage_options)

    def process(self, task: ClusterRange) -> ClusterRange:
        edges = self.store.load("clusters.npy")
        held: list[_Ranked] = []
        files: list[str] = []
        for cluster in range(*task.data):
            start, stop = int(edges[cluster]), int(edges[cluster + 1])
            if stop == start:
                continue
            for piece in self._cluster(cluster, start, stop):
                held.append(piece)
                if sum(len(one.rows) for one in held) >= ROWS_PER_FILE:
                    files.append(self._write(task, len(files), held))
                    held = []
        if held:
            files.append(self._write(task, len(files), held))
        found = {"gpu_peak": self.arithmetic.peak_bytes()}
        return ClusterRange(data=task.data, dataset_name=task.dataset_name, rows=task.rows, files=files, found=found)

    def _write(self, task: ClusterRange, number: int, pieces: list[_Ranked]) -> str:
        name = file_name(task, number)
        self.output.write(name, parquet_bytes(self._table(_together(pieces))))
        return name

    def _cluster(self, cluster: int, start: int, stop: int) -> Iterator[_Ranked]:
        count = stop - start
        keys = np.fromfile(self.store.file("keys.bin"), KEY, count, offset=start * KEY_BYTES)
        order = ranked(self.which_to_keep, keys["row"], keys["distance"], keys["score"])
        keys = keys[order]
        with self._ranked_points(start, stop, order) as rows:
            best, similarity = best_before(
                rows, count, self.store.dim, self.pairwise_batch_size, self.memory, self.arithmetic
            )
        for a in range(0, count, ROWS_PER_FILE):
            part = slice(a, min(a + ROWS_PER_FILE, count))
            yield _Ranked(
                cluster=np.full(part.stop - a, cluster, dtype=np.int32),
                ranks=np.arange(a, part.stop),
                rows=keys["row"][part],
                distances=keys["distance"][part],
                best=best[part],
                best_rows=np.where(best[part] >= 0, keys["row"][best[part]], -1),
                similarity=similarity[part],
            )

    def _table(self, found: _Ranked) -> pa.Table:
        import pyarrow as pa

        from gristmill.tasks.arrow import int_array, number_array

        has_one = found.best_rows >= 0
        # ids of many clusters are looked up at a time: the documents of a cluster are in all parts
        wanted = np.unique(np.concatenate([found.rows, found.best_rows[has_one]]))
        known = self.store.names.take(wanted)
        names = known.take(int_array(np.searchsorted(wanted, found.rows)))
        others = number_array(np.searchsorted(wanted, found.best_rows), has_one)
        return pa.table(
            {
                "id": names.column("id"),
                "max_id": known.column("id").take(others),
                "cosine_sim_score": number_array(found.similarity, has_one),
                "cluster": found.cluster,
                "rank": found.ranks,
                "max_rank": number_array(found.best, has_one),
                "distance": found.distances,
                "row": found.rows,
                SOURCE: names.column(SOURCE),
                **{name: names.column(name) for name in names.column_names if name not in ("id", SOURCE)},
            }
        )

    @contextmanager
    def _ranked_points(self, start: int, stop: int, order: np.ndarray) -> Iterator[Rows]:
        dim, path = self.store.dim, self.store.file("points.bin")
        width = POINT_BYTES * dim
        if (stop - start) * width * 2 <= self.memory:
            yield RowsInMemory(read_points(path, start, stop, dim)[order])
            return
        rank = np.empty(len(order), dtype=np.int64)
        rank[order] = np.arange(len(order))
        file, scratch = tempfile.mkstemp(prefix=RANKED, dir=self.store.path)
        try:
            for at in range(start, stop, STEP):
                points = read_points(path, at, min(at + STEP, stop), dim)
                for point, to in zip(points, rank[at - start :].tolist(), strict=False):
                    write_at(file, point.tobytes(), to * width)
            yield RowsOnDisk(scratch, dim)
        finally:
            os.close(file)
            os.unlink(scratch)


@dataclass(frozen=True, slots=True)
class _Ranked:
    """Documents of clusters by rank, each with the most similar one before it."""

    cluster: np.ndarray
    ranks: np.ndarray
    rows: np.ndarray
    distances: np.ndarray
    best: np.ndarray
    """Its rank; -1 for none."""
    best_rows: np.ndarray
    similarity: np.ndarray


def _together(pieces: list[_Ranked]) -> _Ranked:
    return _Ranked(*(np.concatenate([getattr(piece, one.name) for piece in pieces]) for one in fields(_Ranked)))
