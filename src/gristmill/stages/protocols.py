"""Protocols of some stages only: those that begin a pipeline, end it, or adapt to the others."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

from gristmill.stages.contracts import In, Out
from gristmill.stages.core import ProcessingStage
from gristmill.tasks import Task

if TYPE_CHECKING:
    import pyarrow as pa

    from gristmill.stages.text.filters.document_filter import DocumentFilter
    from gristmill.storage import Folder

Stages = Sequence[ProcessingStage[Any, Any]]
Paths = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]


class Source(ProcessingStage[In, Out]):
    """A stage that a pipeline can begin with: it makes the initial tasks.

    If the pipeline writes files, `process` gives each document an id, unique and the same in every run, in the column
    `gristmill.tasks.document.ID`, and counts the documents in ``batch.account.read`` by the name of their source.
    """

    file_paths: Paths | None = None
    """The input that the user named; None if it reads no files, or none were named."""
    text_field: str | None = "text"
    """The column of the text; None if documents have none."""
    _note_read: Callable[[int], None] | None = None

    @abstractmethod
    def source(self) -> Sequence[Task[Any]] | None:
        """Return the initial tasks, the blocks of a reader for example. None: the user has to give them.

        Called before anything starts. A problem with the input is a `PlanError`. A run that resumes skips the tasks
        that are done by their place in the sequence, so the order must be the same each time.
        """

    def versions(self) -> list[tuple[str, str]]:
        """The files that `source` found, each with a text that changes when its content does."""
        return []

    def changed_inputs(self) -> list[str]:
        """Describe the input files that changed since `source` listed them, one line each. Called when a run ends."""
        return []

    def block_sizes(self, blocks: Sequence[Task[Any]]) -> Sequence[int]:
        """The stored bytes of each of the blocks that `source` returned; empty if they are not known."""
        return ()

    def report_reading_to(self, note: Callable[[int], None]) -> None:
        """Have `process` call ``note`` with the number of documents read since the last batch.

        Views show this progress while a large block is being read.
        """
        self._note_read = note


def own_tasks(stage: ProcessingStage[Any, Any]) -> Sequence[Task[Any]] | None:
    """Return the tasks that a stage begins a pipeline with, numbered in order; None if it makes none by itself."""
    tasks = stage.source() if isinstance(stage, Source) else None
    for number, task in enumerate(tasks or ()):
        task.task_id = str(number)
    return tasks


class Linked(ABC):
    """A stage that adapts to the other stages of its pipeline."""

    @abstractmethod
    def linked(self, before: Stages, after: Stages) -> Self:
        """Return this stage, or a changed copy of it, for a pipeline with these stages before and after it."""


class Tuned(ABC):
    """A stage that finds out a setting while it runs. It reports the value in a note whose name begins with `FOUND`."""

    @abstractmethod
    def with_found(self, settings: Mapping[str, int]) -> Self:
        """Return this stage, or a copy of it that begins with the values that an earlier run found."""


class Scoring(ABC):
    """A stage that drops documents by the scores of rules. It reports the scores in ``account.scored``."""

    @abstractmethod
    def scored_rules(self) -> Sequence[tuple[DocumentFilter, bool]]:
        """Return the rules in order, each with whether it is inverted."""

    @abstractmethod
    def with_scored_rules(self, rules: Sequence[DocumentFilter]) -> Self:
        """Return a copy with other rules in the place of these, one for each."""

    @abstractmethod
    def after_scored_rule(self, number: int) -> Stages:
        """Return stages that do what this one does after its rule of this number."""


class Sink(ProcessingStage[In, Out]):
    """A stage that writes documents. Documents that were dropped are written beside its output."""

    excluded: bool | float = True
    """Whether documents that were dropped are written, or which fraction of them."""
    scores: bool = True
    """Whether the scores of rules are stored beside the output."""
    fields: list[str] | None = None
    """The only columns that are written; None: all."""
    extension: str = ""
    folders: Mapping[str, Sequence[str]] = {}
    """Folders within the output that it writes files of single documents to, each with the extensions of these files.

    Their names are that of the part, a dot, a key without dots, and the extension: ``clips/part-000003.a1b2.mp4``. They
    are in ``account.written`` with no rows, so a run removes, resumes and verifies them with their part.
    """

    @property
    @abstractmethod
    def folder(self) -> Folder:
        """The folder of the output."""

    @property
    def excluded_writer(self) -> Sink[Any, Any]:
        """The writer of dropped documents: another one if its own format has no place for stage, reason and score."""
        return self

    @abstractmethod
    def render(self, table: pa.Table, extra: Sequence[str] = ()) -> bytes:
        """Return the content of a file with these documents.

        ``extra`` columns are written even if the writer is limited to other fields.
        """
