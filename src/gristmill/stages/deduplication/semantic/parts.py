"""The length of embeddings, their parts, and the clusters of each task."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from gristmill.errors import PlanError
from gristmill.lazy import np
from gristmill.stages.deduplication.semantic.embeddings import StoreEmbeddingsStage
from gristmill.stages.deduplication.semantic.store import EmbeddingStore, StoredPart
from gristmill.stages.deduplication.semantic.tasks import ClusterRange, EmbeddingPart
from gristmill.stages.text.io.reader.base import FileReader
from gristmill.tasks import DocumentBatch
from gristmill.tasks.document import HIDDEN

EXAMINED = 1000
"""Embeddings whose most frequent length is taken."""
ROWS_PER_TASK = 1 << 15
"""Small clusters share a task up to this number of documents."""
FIELDS = {
    "embedded texts": "text_field=... where texts are in another",
    "ids": "id_field=... where ids are in another, or id_field=None to take <file>#<position>",
    "texts": "text_field=... where texts are in another, or another which_to_keep than 'longest'",
    "scores": "score_field=... where scores are in another, or another which_to_keep than 'best'",
}
"""Advice if documents lack a field, by its use."""


def length_of_first(reader: FileReader, stage: StoreEmbeddingsStage) -> int:
    """Return the most frequent length of the first embeddings."""
    from gristmill.stages.deduplication.semantic.columns import lengths_of

    name = stage.embedding_field
    lengths: list[int] = []
    for batch in _batches(reader, stage):
        table = batch.to_pyarrow().slice(0, EXAMINED)
        lengths += lengths_of(table.schema.field(name), table.column(name))
        if len(lengths) >= EXAMINED:
            break
    if not lengths:
        raise PlanError(
            f"no document of the input has an embedding in the field {name!r}: "
            "say embedding_field=... where they are in another, or embedding_dim=... to go on without."
        )
    return Counter(lengths[:EXAMINED]).most_common(1)[0][0]


def check_fields(reader: FileReader, stage: StoreEmbeddingsStage, text_field: str | None = None) -> None:
    """Raise `PlanError` if the first documents lack the field of ids, or the field that ranks them.

    ``text_field`` is the field whose texts are embedded, if the documents have no embeddings yet.
    """
    ranked_by = "texts" if stage.which_to_keep == "longest" else "scores"
    wanted = {"embedded texts": text_field, "ids": stage.id_field, ranked_by: stage.ranked_by}
    if not any(wanted.values()):
        return
    batches = _batches(reader, stage) if text_field is None else _read(reader, reader)
    first = next((batch for batch in batches if batch.num_items), None)
    if first is None:
        return
    columns = first.to_pyarrow()
    there = {name for name in columns.column_names if columns.column(name).null_count < first.num_items}
    empty = {use: name for use, name in wanted.items() if name and name not in there}
    if not empty:
        return
    whole = next(batch for batch in _read(reader, reader) if batch.num_items)
    fields = [column for column in whole.to_pyarrow().column_names if column not in HIDDEN]
    for use, name in empty.items():
        if name not in fields:
            raise PlanError(
                f"the first documents of the input have no field {name!r} for their {use}; "
                f"they have: {', '.join(fields)}.\n    say {FIELDS[use]}."
            )


def _batches(reader: FileReader, stage: StoreEmbeddingsStage) -> Iterator[DocumentBatch]:
    yield from _read(reader, reader.linked([], [stage]))


def _read(reader: FileReader, reading: FileReader) -> Iterator[DocumentBatch]:
    for block in reader.source() or []:
        found: Any = reading.process(block)
        yield from [found] if isinstance(found, DocumentBatch) else found


def settled(store: EmbeddingStore, parts: Sequence[EmbeddingPart], dim: int) -> list[EmbeddingPart]:
    """Return the parts in the order of the input, and write it to the store."""
    ordered = sorted(parts, key=lambda part: [int(number) for number in part.data.split(".")])
    starts = np.cumsum([0, *(part.rows for part in ordered)]).tolist()
    listed = [StoredPart(part.data, part.rows, start) for part, start in zip(ordered, starts, strict=False)]
    types: dict[str, set[str]] = {}
    for part in ordered:
        for name, kind in part.types.items():
            types.setdefault(name, set()).add(kind)
    store.write_parts(listed, dim, [name for name, kinds in types.items() if len(kinds - {"null"}) > 1])
    return ordered


def cluster_ranges(edges: np.ndarray) -> Iterator[ClusterRange]:
    """Yield clusters in tasks of about `ROWS_PER_TASK` documents: files do not depend on the number of workers."""
    first = 0
    for stop in range(1, len(edges)):
        rows = int(edges[stop] - edges[first])
        if rows >= ROWS_PER_TASK or stop == len(edges) - 1:
            if rows:
                yield ClusterRange(data=(first, stop), rows=rows)
            first = stop
