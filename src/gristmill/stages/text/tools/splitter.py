"""Split documents into segments."""

from __future__ import annotations

from typing import Any

from gristmill.lazy import np
from gristmill.stages.core import ProcessingStage
from gristmill.stages.registry import builtin
from gristmill.tasks import DocumentBatch
from gristmill.tasks.document import ID


@builtin
class DocumentSplitter(ProcessingStage[DocumentBatch, DocumentBatch]):
    """Splits each document at a separator into segments. Each segment is a document of the same batch.

    A segment has all other fields of its document, and its number from 0 in ``segment_id_field``. The separator is
    removed; `DocumentJoiner` inserts it again. For that give documents an id first (`AddId`).

    The identity of segments is the document's with their number: ``corpus.jsonl#512/0``, ``corpus.jsonl#512/1``. A
    document without the separator has one segment and keeps its identity. The ledger counts all segments except the
    first as made.
    """

    accounts_for_documents = True

    def __init__(self, separator: str, text_field: str = "text", segment_id_field: str = "segment_id") -> None:
        if not separator:
            raise ValueError("DocumentSplitter: the separator is empty.")
        if text_field == segment_id_field:
            raise ValueError(f"DocumentSplitter: text and segment id cannot both be in the field {text_field!r}.")
        self.separator = separator
        self.text_field = text_field
        self.segment_id_field = segment_id_field

    def inputs(self) -> tuple[list[str], list[str]]:
        return ["data"], [self.text_field]

    def outputs(self) -> tuple[list[str], list[str]]:
        return ["data"], [self.text_field, self.segment_id_field]

    def process(self, task: DocumentBatch) -> DocumentBatch:
        import pyarrow as pa
        import pyarrow.compute as pc

        from gristmill.tasks.arrow import one_array

        table = task.data
        texts = one_array(table.column(self.text_field))
        lists = pc.split_pattern(texts.fill_null(""), self.separator)
        sizes = pc.list_value_length(lists).to_numpy()
        parents = np.repeat(np.arange(len(sizes)), sizes)
        numbers = np.arange(len(parents)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        segments: Any = lists.flatten()
        if texts.null_count:  # a null has no segments and stays one document
            segments = pc.if_else(pa.array(texts.is_valid().to_numpy(False)[parents]), segments, None)
        columns = {name: table.column(name).take(pa.array(parents)) for name in table.column_names}
        columns[self.text_field] = segments.cast(pa.large_string())
        columns[self.segment_id_field] = pa.array(numbers)
        if ID in columns:
            columns[ID] = _identities(table.column(ID).to_pylist(), sizes.tolist())
        made = len(parents) - len(sizes)
        task.data = pa.table(columns)
        task.account.made += made
        return task


def _identities(parents: list[str], sizes: list[int]) -> Any:
    import pyarrow as pa

    ids: list[str] = []
    for parent, size in zip(parents, sizes, strict=True):
        ids += [parent] if size == 1 else [f"{parent}/{n}" for n in range(size)]
    return pa.array(ids, type=pa.large_string())
