"""Ids of documents in a field."""

from __future__ import annotations

from hashlib import blake2b

from gristmill.stages.core import ProcessingStage
from gristmill.stages.registry import builtin
from gristmill.stages.text.modifiers.modify import put_column
from gristmill.tasks import DocumentBatch
from gristmill.tasks.document import ID

ID_BYTES = 12
"""Bytes of the hash. With ten billion documents the probability that any two share an id is one in a billion."""


@builtin
class AddId(ProcessingStage[DocumentBatch, DocumentBatch]):
    """Writes an id to ``id_field``: the same in every run with any number of workers, and unique in the run.

    By default it is a hash of the document's origin (source file and position; the number of a segment, if it was
    split): ``doc_5f0c...``, with ``id_prefix="doc"``. It does not depend on other documents and stages.

    With ``start_index`` documents are counted within their block: ``doc_12_0``, ``doc_12_1``, ... for the block 12
    and ``start_index=0``. Such ids show the order of the input. They change with ``blocksize``, and if an earlier stage
    drops other documents. Batches that were not read by a reader always get ids of this kind.

    An existing field is an error, unless ``overwrite``.
    """

    accounts_for_documents = True

    def __init__(
        self, id_field: str, id_prefix: str | None = None, start_index: int | None = None, overwrite: bool = False
    ) -> None:
        self.id_field = id_field
        self.id_prefix = id_prefix
        self.start_index = start_index
        self.overwrite = overwrite
        # Each part of a batch would be counted from the start.
        self.split_on_failure = start_index is None

    def inputs(self) -> tuple[list[str], list[str]]:
        return ["data"], []

    def looks_at(self) -> list[str]:
        return [] if self.overwrite else [self.id_field]

    def outputs(self) -> tuple[list[str], list[str]]:
        return ["data"], [self.id_field]

    def process(self, task: DocumentBatch) -> DocumentBatch:
        import pyarrow as pa

        if self.id_field in task.columns and not self.overwrite:
            raise ValueError(
                f"AddId: there is a column {self.id_field!r} already. Name another id_field, or set overwrite=True."
            )
        prefix = f"{self.id_prefix}_" if self.id_prefix else ""
        if self.start_index is None and ID in task.data.column_names:
            origins = task.data.column(ID).to_pylist()
            ids = [f"{prefix}{blake2b(origin.encode(), digest_size=ID_BYTES).hexdigest()}" for origin in origins]
        else:
            first = self.start_index or 0
            ids = [f"{prefix}{task.task_id}_{first + row}" for row in range(task.num_items)]
        put_column(task, self.id_field, pa.array(ids, type=pa.large_string()))
        return task
