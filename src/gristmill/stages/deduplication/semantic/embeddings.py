"""From documents to points in the `EmbeddingStore`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

from gristmill.lazy import np
from gristmill.stages.core import ProcessingStage
from gristmill.stages.deduplication.semantic.fixed_point import to_grid
from gristmill.stages.deduplication.semantic.ranking import BY_SCORE
from gristmill.stages.deduplication.semantic.store import EmbeddingStore
from gristmill.stages.deduplication.semantic.tasks import EmbeddingPart
from gristmill.stages.registry import builtin_internal
from gristmill.storage import Folder
from gristmill.tasks import DocumentBatch
from gristmill.tasks.document import ID
from gristmill.tasks.names import part_name

if TYPE_CHECKING:
    import pyarrow as pa

SOURCE = "source_id"
"""The column of the place of a document in the input: ``<file>#<position>``."""
STEP = 256
"""Embeddings that are put on the grid at a time: they fit the cache of a CPU."""


@builtin_internal
@dataclass(eq=False, repr=False)
class StoreEmbeddingsStage(ProcessingStage[DocumentBatch, EmbeddingPart]):
    """Puts the embeddings of a batch into the store; documents without a usable one are listed in ``quarantine``.

    They stay in the data: without an embedding they are duplicates of no document.
    """

    split_on_failure = False
    fan_out = False
    loads = ("gristmill.stages.deduplication.semantic.columns",)

    store_path: str
    quarantine_path: str
    embedding_field: str
    embedding_dim: int
    id_field: str | None = None
    metadata_fields: Sequence[str] = ()
    which_to_keep: str = "hard"
    score_field: str | None = None
    text_field: str = "text"
    random_state: int = 42
    storage_options: dict[str, Any] | None = None

    def __post_init__(self) -> None:
        self.store = EmbeddingStore(self.store_path)
        self.quarantine = Folder(self.quarantine_path, self.storage_options)
        self.ranked_by = {"longest": self.text_field, "best": self.score_field}.get(self.which_to_keep)

    def inputs(self) -> tuple[list[str], list[str]]:
        others = [name for name in (self.id_field, self.ranked_by) if name is not None]
        return ["data"], list(dict.fromkeys([self.embedding_field, *others, *self.metadata_fields]))

    def outputs(self) -> tuple[list[str], list[str]]:
        return [], []

    def process(self, task: DocumentBatch) -> EmbeddingPart:
        import pyarrow as pa

        from gristmill.stages.deduplication.semantic.columns import embeddings_of

        table = task.to_pyarrow()
        column, field = table.column(self.embedding_field), table.schema.field(self.embedding_field)
        found = embeddings_of(field, column, self.embedding_dim)
        ids = self._ids(table)
        self._write_points(task.task_id, found.vectors)
        rows = pa.array(found.rows)
        kept = ids.take(rows)
        scores = self._scores(table.take(rows), kept)
        self.store.write(self.store.part_file(task.task_id, "scores"), scores)
        sink = pa.BufferOutputStream()
        with pa.ipc.new_file(sink, kept.schema) as writer:
            writer.write_table(kept)
        self.store.write(self.store.part_file(task.task_id, "arrow"), sink.getvalue())
        if found.bad:
            self._write_bad(task.task_id, ids, found.bad)
        return EmbeddingPart(
            data=task.task_id,
            dataset_name=task.dataset_name,
            rows=len(found.rows),
            bad=dict(Counter(kind for _, kind, _ in found.bad)),
            types={field.name: str(field.type) for field in kept.schema},
        )

    def _ids(self, table: pa.Table) -> pa.Table:
        from gristmill.stages.text.io.json_columns import plain_strings

        source = table.column(ID)
        columns = {"id": source if self.id_field is None else plain_strings(table, self.id_field), SOURCE: source}
        return _table(columns | {name: plain_strings(table, name) for name in self.metadata_fields})

    def _write_points(self, task_id: str, vectors: np.ndarray) -> None:
        points = np.empty(vectors.shape, dtype=np.int32)
        for at in range(0, len(vectors), STEP):
            points[at : at + STEP] = to_grid(vectors[at : at + STEP])
        self.store.write(self.store.part_file(task_id, "points"), points)

    def _scores(self, table: pa.Table, ids: pa.Table) -> np.ndarray:
        if self.which_to_keep not in BY_SCORE:
            return np.zeros(table.num_rows)
        if self.ranked_by is None:
            return hashes(ids.column("id").to_pylist(), self.random_state)
        column = table.column(self.ranked_by)
        return lengths_of_texts(column) if self.which_to_keep == "longest" else _numbers(column)

    def _write_bad(self, task_id: str, ids: pa.Table, bad: list[tuple[int, str, str]]) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        listed = ids.take(pa.array([row for row, _, _ in bad], pa.int64()))
        listed = listed.append_column("reason", pa.array([reason for _, reason, _ in bad], pa.string()))
        listed = listed.append_column("details", pa.array([details for _, _, details in bad], pa.string()))
        sink = pa.BufferOutputStream()
        pq.write_table(listed, sink)
        self.quarantine.write(part_name(task_id, ".parquet"), sink.getvalue())


def lengths_of_texts(column: Any) -> np.ndarray:
    """Return the length of each text in characters; NaN for a missing one."""
    import pyarrow as pa
    import pyarrow.compute as pc

    return _numbers(pc.utf8_length(column.cast(pa.large_string())))


def _numbers(column: Any) -> np.ndarray:
    import pyarrow as pa
    import pyarrow.compute as pc

    numbers = pc.cast(column, pa.float64()).fill_null(float("nan"))
    found: np.ndarray = np.asarray(numbers.to_numpy(zero_copy_only=False), dtype=np.float64)
    return found


def hashes(ids: list[Any], seed: int) -> np.ndarray:
    """Return a random number for each id, the same for the same seed."""
    key = str(seed).encode()[:64]
    whole = [int.from_bytes(blake2b(str(one).encode(), digest_size=6, key=key).digest(), "big") for one in ids]
    return np.array(whole, dtype=np.float64)


def _table(columns: dict[str, Any]) -> pa.Table:
    import pyarrow as pa

    return pa.table(columns).combine_chunks()
