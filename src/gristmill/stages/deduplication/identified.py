"""The end of a pipeline that finds duplicates and writes no documents."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from gristmill.stages.registry import builtin_internal
from gristmill.stages.text.io.writer.base import FileWriter
from gristmill.tasks import DocumentBatch, FileGroupTask, Written

if TYPE_CHECKING:
    import pyarrow as pa


@builtin_internal
class Identified(FileWriter):
    """Writes no documents: only the records of removed documents are wanted."""

    extension = ".jsonl"
    excluded = False
    splices_lines = True

    def __init__(self, path: str, write_kwargs: dict[str, Any] | None = None) -> None:
        self.path = path
        self.storage_options: dict[str, Any] = dict((write_kwargs or {}).get("storage_options") or {})
        self.fields: list[str] | None = []

    def render(self, table: pa.Table, extra: Sequence[str] = ()) -> bytes:
        return b""

    def process(self, task: DocumentBatch) -> FileGroupTask:
        done = FileGroupTask(dataset_name=task.dataset_name)
        done.account.written.append(Written("", task.num_items, 0))
        return done
