"""The base of stages that find a reference in documents: its source, and the action on documents."""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self

from gristmill.errors import PlanError
from gristmill.lazy import np
from gristmill.logs import logger
from gristmill.stages.core import ProcessingStage
from gristmill.stages.decontamination.reference import ReferenceSource
from gristmill.stages.protocols import Linked, Stages
from gristmill.stages.text.filters.columns import set_column, texts_among
from gristmill.stages.text.io.listing import File
from gristmill.tasks import DocumentBatch

if TYPE_CHECKING:
    from gristmill.kernels.texts import Texts


@dataclass(frozen=True)
class Matches:
    """For each document the entry that it overlaps most, -1 for none, and the score."""

    entry: np.ndarray[Any, Any]
    scores: np.ndarray[Any, Any]


class Decontamination(ProcessingStage[DocumentBatch, DocumentBatch], Linked):
    """Looks for a reference in each document, and drops or flags documents that overlap it.

    The reference is read when a pipeline is planned, so that its errors are reported then, and again by `preload` in
    the process from which workers are forked; it is not sent with the stage.
    """

    accounts_for_documents = True
    row_wise = True
    needs_all_fields = True
    actions: ClassVar[tuple[str, ...]] = ("drop", "flag")

    reference_path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | None
    reference_field: str | Sequence[str]
    text_field: str
    action: str
    flag_field: str
    score_field: str | None
    reference_texts: Sequence[str] | None
    read_kwargs: Mapping[str, Any] | None

    def __post_init__(self) -> None:
        fields = self.reference_field
        self.reference = ReferenceSource.of(
            self.name, self.reference_path, self.reference_texts, fields, self.read_kwargs
        )
        if self.action not in self.actions:
            known = ", ".join(map(repr, self.actions))
            raise ValueError(f"{self.name}: action is one of {known}, not {self.action!r}.")
        names = [self.flag_field, self.score_field] if self.action == "flag" else []
        if self.text_field in names or (len(names) > 1 and names[0] == names[1]):
            raise ValueError(f"{self.name}: text_field, flag_field and score_field must be different fields.")
        self._loaded: tuple[Any, Sequence[str]] | None = None

    @abstractmethod
    def load(self, files: tuple[File, ...]) -> tuple[Any, Sequence[str]]:
        """Return the index of the reference, made once in a process, and the names of its entries."""

    @abstractmethod
    def find(self, texts: Texts) -> Matches:
        """Find the reference in texts."""

    @abstractmethod
    def wanted(self) -> np.ndarray[Any, Any]:
        """Return the entries to look for, without those that are too short."""

    @property
    def index(self) -> Any:
        self.setup()
        assert self._loaded is not None
        return self._loaded[0]

    def reason(self, entry: int) -> str:
        return f"overlaps {self.entry_name(entry)}"

    def entry_name(self, entry: int) -> str:
        self.setup()
        assert self._loaded is not None
        return self._loaded[1][entry]

    def linked(self, before: Stages, after: Stages) -> Self:
        self._loaded = self.load(tuple(self.reference.files()))
        entries, wanted = len(self._loaded[1]), len(self.wanted())
        if not wanted:
            raise PlanError(f"{self.name!r}: none of the {entries:,} entries of the reference is long enough.")
        if wanted < entries:
            few = f"{entries - wanted:,} of the {entries:,} entries of the reference"
            logger.info(f"{self.name}: {few} are too short, or have nothing of their own, and are not looked for")
        return self

    def preload(self) -> None:
        self.load(tuple(self.reference.files()))

    def setup(self, worker_metadata: Any = None) -> None:
        if self._loaded is None:
            self._loaded = self.load(tuple(self.reference.files()))

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_loaded": None}

    def inputs(self) -> tuple[list[str], list[str]]:
        return ["data"], [self.text_field]

    def outputs(self) -> tuple[list[str], list[str]]:
        made = {"cut": [self.text_field], "flag": [self.flag_field, *([self.score_field] if self.score_field else [])]}
        return ["data"], made.get(self.action, [])

    def process(self, task: DocumentBatch) -> DocumentBatch:
        found = self.find(texts_among(task, self.text_field))
        return self._flag(task, found) if self.action == "flag" else self._drop(task, found)

    def _drop(self, task: DocumentBatch, found: Matches) -> DocumentBatch:
        gone = found.entry >= 0
        reasons = [self.reason(entry) for entry in found.entry[gone].tolist()]
        return task.keep(~gone, reasons, found.scores[gone].astype(float).tolist())

    def _flag(self, task: DocumentBatch, found: Matches) -> DocumentBatch:
        import pyarrow as pa

        names = [self.entry_name(entry) if entry >= 0 else None for entry in found.entry.tolist()]
        set_column(task, self.flag_field, pa.array(names, type=pa.large_string()))
        if self.score_field:
            set_column(task, self.score_field, pa.array(found.scores))
        task.account.counters["documents flagged"] += int((found.entry >= 0).sum())
        return task
