"""Files of embeddings that remember which documents of the input they are of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gristmill.stages.core import ProcessingStage
from gristmill.stages.registry import builtin_internal
from gristmill.stages.text.filters.columns import set_column
from gristmill.tasks import DocumentBatch
from gristmill.tasks.document import HIDDEN, ID

DOCUMENT = "gristmill_document_id"
"""The column of the places of documents in the input: ``<file>#<position>``."""


@builtin_internal
@dataclass(eq=False, repr=False)
class SelectForDeduplication(ProcessingStage[DocumentBatch, DocumentBatch]):
    """Leaves the columns ``fields`` of documents, and adds their places in the input."""

    fields: Sequence[str]

    def inputs(self) -> tuple[list[str], list[str]]:
        return ["data"], list(self.fields)

    def outputs(self) -> tuple[list[str], list[str]]:
        return ["data"], [DOCUMENT]

    def process(self, task: DocumentBatch) -> DocumentBatch:
        table = task.data
        hidden = [name for name in table.column_names if name in HIDDEN]
        task.data = table.select([*hidden, *self.fields])
        set_column(task, DOCUMENT, table.column(ID))
        return task


@builtin_internal
@dataclass(eq=False, repr=False)
class RestoreDocumentIds(ProcessingStage[DocumentBatch, DocumentBatch]):
    """Gives documents the ids that `SelectForDeduplication` has written."""

    def inputs(self) -> tuple[list[str], list[str]]:
        return ["data"], [DOCUMENT]

    def outputs(self) -> tuple[list[str], list[str]]:
        return ["data"], []

    def process(self, task: DocumentBatch) -> DocumentBatch:
        import pyarrow as pa

        set_column(task, ID, task.data.column(DOCUMENT).cast(pa.large_string()))
        task.data = task.data.drop_columns([DOCUMENT])
        return task
