"""Which documents are duplicates at a threshold, and their survivors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gristmill.lazy import np
from gristmill.stages.core import ProcessingStage
from gristmill.stages.deduplication.semantic.embeddings import SOURCE
from gristmill.stages.deduplication.semantic.pairwise_stage import file_name, parquet_bytes
from gristmill.stages.deduplication.semantic.store import EmbeddingStore
from gristmill.stages.deduplication.semantic.tasks import ClusterRange
from gristmill.stages.registry import builtin_internal
from gristmill.storage import Folder

if TYPE_CHECKING:
    import pyarrow as pa

NUMBERS = ["cluster", "rank", "max_rank", "cosine_sim_score", "row"]


def survivors(best: np.ndarray, removed: np.ndarray) -> np.ndarray:
    """Return the survivor of each row: itself, or the survivor of its most similar row.

    ``best`` of a removed row is a row before it.
    """
    towards = np.where(removed, best, np.arange(len(best)))
    while True:
        further = towards[towards]
        if np.array_equal(further, towards):
            return towards
        towards = further


def kept_rows(table: pa.Table, eps: float) -> tuple[np.ndarray, int]:
    """Return the line of the survivor for each duplicate, -1 for others; and the number of chained duplicates.

    ``table`` has the columns `NUMBERS` of whole clusters, in the order of clusters and ranks.
    """
    cluster, rank = (table.column(name).to_numpy() for name in ("cluster", "rank"))
    best = table.column("max_rank").fill_null(-1).to_numpy()
    similarity = table.column("cosine_sim_score").fill_null(float("nan")).to_numpy()
    removed = (best >= 0) & (similarity >= 1.0 - eps)
    starts = np.arange(len(rank)) - rank  # the line of the cluster's first
    best = np.where(removed, best + starts, -1)
    assert (cluster[starts] == cluster).all(), "files of a range of clusters are not in order"
    to = survivors(best, removed)
    return np.where(removed, to, -1), int((removed & (to != best)).sum())


@builtin_internal
@dataclass(eq=False, repr=False)
class IdentifyDuplicatesStage(ProcessingStage[ClusterRange, ClusterRange]):
    """Lists the documents for which one of a higher rank is at least 1 - ``eps`` similar, with their records.

    ``similar_id`` is the most similar one of a higher rank, which may itself be a duplicate; ``kept_id`` is its
    survivor. Where the two differ a duplicate is linked only transitively, which is counted as ``chained``.
    """

    loads = ("pyarrow.parquet",)
    fan_out = False

    store_path: str
    pairwise_path: str
    output_path: str
    eps: float
    storage_options: dict[str, Any] | None = None

    def __post_init__(self) -> None:
        self.store = EmbeddingStore(self.store_path)
        self.pairwise = Folder(self.pairwise_path, self.storage_options)
        self.output = Folder(self.output_path, self.storage_options)

    def process(self, task: ClusterRange) -> ClusterRange:
        files: list[str] = []
        kept, chained = self._kept(task)
        duplicates = at = 0
        for name in task.files:
            table = self._read(name)
            rows = kept[at : at + table.num_rows]
            at += table.num_rows
            records = self._records(table, rows)
            duplicates += records.num_rows
            if records.num_rows:
                files.append(file_name(task, len(files)))
                self.output.write(files[-1], parquet_bytes(records))
        found = {**task.found, "duplicates": duplicates, "chained": chained}
        return ClusterRange(data=task.data, dataset_name=task.dataset_name, rows=task.rows, files=files, found=found)

    def _read(self, name: str, columns: list[str] | None = None) -> pa.Table:
        import pyarrow.parquet as pq

        with self.pairwise.open(name) as file:
            return pq.ParquetFile(file).read(columns=columns)

    def _kept(self, task: ClusterRange) -> tuple[np.ndarray, int]:
        """Return the surviving row for each line of the task's files, -1 for a survivor; and the chained duplicates."""
        import pyarrow as pa

        if not task.files:
            return np.zeros(0, dtype=np.int64), 0
        table = pa.concat_tables([self._read(name, NUMBERS) for name in task.files])
        kept, chained = kept_rows(table, self.eps)
        row = table.column("row").to_numpy()
        return np.where(kept >= 0, row[np.maximum(kept, 0)], -1), chained

    def _records(self, table: pa.Table, kept: np.ndarray) -> pa.Table:
        import pyarrow as pa

        lines = np.flatnonzero(kept >= 0)
        found = table.take(pa.array(lines))
        names = self.store.names.take(kept[lines])
        leading = {
            "id": found.column("id"),
            "kept_id": names.column("id"),
            "similar_id": found.column("max_id"),
            "similarity": found.column("cosine_sim_score"),
            "cluster": found.column("cluster"),
            "distance": found.column("distance"),
            SOURCE: found.column(SOURCE),
            f"kept_{SOURCE}": names.column(SOURCE),
        }
        technical = {"max_id", "cosine_sim_score", "rank", "max_rank", "row"}
        rest = {name: found.column(name) for name in found.column_names if name not in {*leading, *technical}}
        return pa.table({**leading, **rest})
