"""Split documents into segments, and join segments to documents."""

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


@builtin
class DocumentJoiner(ProcessingStage[DocumentBatch, DocumentBatch]):
    """Joins the segments of a document, those with the same ``document_id_field``, in the order of their numbers.

    The joined document has the other fields, the identity and the place of its first segment. The ledger counts the
    other segments as merged. Segments without a document's id are not joined.

    With ``max_length``, segments are joined while the sum of their ``length_field``, with a separator's length between
    each two, is at most that. What does not fit begins the next document; these documents get new numbers. A longer
    segment stays alone. ``length_field`` then contains the sum.

    Only segments in one batch are joined. The segments of a `DocumentSplitter` stay in one batch. If a stage in between
    fails on a batch, the batch may be split, and segments in different parts are not joined.
    """

    accounts_for_documents = True
    split_on_failure = False

    def __init__(
        self,
        separator: str = "\n\n",
        text_field: str = "text",
        segment_id_field: str = "segment_id",
        document_id_field: str = "id",
        drop_segment_id_field: bool = True,
        max_length: int | None = None,
        length_field: str | None = None,
    ) -> None:
        if (max_length is None) != (length_field is None):
            raise ValueError("DocumentJoiner: give both max_length and length_field, or neither.")
        self.separator = separator
        self.text_field = text_field
        self.segment_id_field = segment_id_field
        self.document_id_field = document_id_field
        self.drop_segment_id_field = drop_segment_id_field
        self.max_length = max_length
        self.length_field = length_field

    def inputs(self) -> tuple[list[str], list[str]]:
        needed = [self.text_field, self.segment_id_field, self.document_id_field, self.length_field]
        return ["data"], [name for name in needed if name is not None]

    def outputs(self) -> tuple[list[str], list[str]]:
        made = [self.text_field, None if self.drop_segment_id_field else self.segment_id_field, self.length_field]
        return ["data"], [name for name in made if name is not None]

    def removes(self) -> list[str]:
        return [self.segment_id_field] if self.drop_segment_id_field else []

    def process(self, task: DocumentBatch) -> DocumentBatch:
        import pyarrow as pa

        table = task.data
        groups, lengths = self._groups(table)
        texts = table.column(self.text_field).to_pylist()
        joined = [self._text([texts[row] for row in rows]) for _, rows in groups]
        firsts = pa.array([rows[0] for _, rows in groups], type=pa.int64())
        columns = {name: table.column(name).take(firsts) for name in table.column_names}
        columns[self.text_field] = pa.array(joined, type=pa.large_string())
        if self.length_field is not None:
            columns[self.length_field] = pa.array(lengths, type=table.column(self.length_field).type)
        if self.drop_segment_id_field:
            del columns[self.segment_id_field]
        elif self.max_length is not None:
            kind = table.column(self.segment_id_field).type
            columns[self.segment_id_field] = pa.array([number for number, _ in groups]).cast(kind)
        merged = table.num_rows - len(groups)
        task.data = pa.table(columns)
        task.account.merged += merged
        return task

    def _text(self, segments: list[str | None]) -> str | None:
        if len(segments) == 1:
            return segments[0]
        return self.separator.join(segment or "" for segment in segments)

    def _groups(self, table: Any) -> tuple[list[tuple[int, list[int]]], list[Any]]:
        """Return the groups of rows to join, each with its number in the document, and the groups' lengths."""
        numbers = table.column(self.segment_id_field).to_pylist()
        by_document: dict[Any, list[int]] = {}
        for row, document in enumerate(table.column(self.document_id_field).to_pylist()):
            by_document.setdefault((document,) if document is not None else row, []).append(row)
        for rows in by_document.values():
            rows.sort(key=lambda row: (numbers[row] is None, numbers[row] or 0, row))
        documents = list(by_document.values())
        if self.max_length is None or self.length_field is None:
            return [(0, rows) for rows in documents], []
        lengths = table.column(self.length_field).to_pylist()
        groups: list[tuple[int, list[int]]] = []
        sums: list[Any] = []
        for rows in documents:
            number = 0
            for row in rows:
                length = lengths[row] or 0
                longer = sums[-1] + length + len(self.separator) if number else 0
                if number and longer <= self.max_length:
                    groups[-1][1].append(row)
                    sums[-1] = longer
                else:
                    groups.append((number, [row]))
                    sums.append(length)
                    number += 1
        return groups, sums
