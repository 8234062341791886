"""The base of writers: one file for each task, named by it, whole or not there."""

from __future__ import annotations

import copy
import os
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Self

from gristmill.stages.protocols import Linked, Sink, Stages
from gristmill.stages.text.io.reader.base import FileReader
from gristmill.storage import Folder
from gristmill.tasks import DocumentBatch, FileGroupTask, Written
from gristmill.tasks.document import HIDDEN
from gristmill.tasks.names import part_name

if TYPE_CHECKING:
    import pyarrow as pa


class FileWriter(Sink[DocumentBatch, FileGroupTask], Linked):
    """Writes each batch to a file of its own."""

    accounts_for_documents = True
    indifferent: ClassVar[tuple[str, ...]] = ("scores",)
    touched: frozenset[str] | None = None
    """The columns that stages may have set since they were read; None: any."""
    narrowed: bool = False
    """Whether a stage has left nothing of the documents but the columns that it makes."""
    removed: frozenset[str] = frozenset()
    """The columns that stages removed. If one exists all the same, a later stage made it again."""

    def _set_arguments(
        self,
        path: str | os.PathLike[str],
        fields: Sequence[str] | None,
        excluded: bool | float,
        scores: bool,
        write_kwargs: dict[str, Any] | None,
        known: Sequence[str],
    ) -> dict[str, Any]:
        """Set the arguments that all writers have. Return the rest of ``write_kwargs``."""
        if isinstance(fields, str):
            raise ValueError(f"fields must be a list of names: [{fields!r}].")
        if isinstance(excluded, str) or not 0 <= excluded <= 1:
            raise ValueError(f"excluded must be True, False or a fraction between 0 and 1, not {excluded!r}.")
        options = dict(write_kwargs or {})
        storage = options.pop("storage_options", None)
        if unknown := sorted(set(options) - set(known)):
            names = ", ".join(map(repr, ["storage_options", *known]))
            raise ValueError(f"write_kwargs knows {names}, not {', '.join(map(repr, unknown))}.")
        self.path = os.fspath(path)
        self.storage_options: dict[str, Any] = dict(storage or {})
        self.fields = None if fields is None else list(dict.fromkeys(fields))
        self.excluded = excluded
        self.scores = scores
        return options

    @cached_property
    def folder(self) -> Folder:
        return Folder(self.path, self.storage_options)

    def inputs(self) -> tuple[list[str], list[str]]:
        return ["data"], []

    def outputs(self) -> tuple[list[str], list[str]]:
        return ["data"], []

    def columns_needed(self) -> list[str] | None:
        return self.fields

    def linked(self, before: Stages, after: Stages) -> Self:
        clone = copy.copy(self)
        readers = [i for i, stage in enumerate(before) if isinstance(stage, FileReader)]
        between = before[readers[-1] + 1 :] if readers else before
        clone.touched = None
        if readers and all(stage.declares_outputs() and stage.builtin for stage in between):
            clone.touched = frozenset(name for stage in between for name in stage.outputs()[1])
        clone.removed = frozenset(name for stage in between for name in stage.removes())
        clone.narrowed = any(stage.only_outputs for stage in between)
        return clone

    def process(self, task: DocumentBatch) -> FileGroupTask:
        data = self._of_batch(task)
        name = part_name(task.task_id, self.extension)
        checksum = self.folder.write(name, data)
        written = FileGroupTask(data=[self.folder.full_path(name)], dataset_name=task.dataset_name)
        written.account.written.append(Written(name, task.num_items, len(data), checksum))
        return written

    def _of_batch(self, task: DocumentBatch) -> Any:
        return self._rendered(task.to_pyarrow())

    def render(self, table: pa.Table, extra: Sequence[str] = ()) -> bytes:
        """The content of a file with these documents. Hidden columns do not show.

        ``extra`` columns are written also if ``fields`` does not name them.
        """
        return bytes(self._rendered(table, extra))

    def _rendered(self, table: pa.Table, extra: Sequence[str] = ()) -> Any:
        """The same as anything that has bytes and a length."""
        raise NotImplementedError

    def _written(self, extra: Sequence[str]) -> list[str] | None:
        """The only fields that are written; None: all."""
        return None if self.fields is None else list(dict.fromkeys([*self.fields, *extra]))

    @staticmethod
    def _visible(table: pa.Table) -> list[str]:
        return [name for name in table.column_names if name not in HIDDEN]
