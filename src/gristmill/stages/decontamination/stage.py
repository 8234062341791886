"""What the ways to find a reference in documents share: where it is from, and what becomes of the documents."""

from __future__ import annotations

import sys
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self

from gristmill.errors import PlanError
from gristmill.lazy import np
from gristmill.stages.core import ProcessingStage
from gristmill.stages.decontamination.reference import ReferenceSource
from gristmill.stages.text.filters.columns import set_column, texts_among
from gristmill.stages.text.io.listing import File
from gristmill.tasks import DocumentBatch

if TYPE_CHECKING:
    from gristmill.kernels.texts import Texts


@dataclass(frozen=True)
class Matches:
    """For each document the entry of the reference that it has most in common with, -1 if none, and how much."""

    entry: np.ndarray[Any, Any]
    scores: np.ndarray[Any, Any]


class Decontamination(ProcessingStage[DocumentBatch, DocumentBatch]):
    """Looks for a reference in documents, each by itself, and drops those that have something of it, or flags them.

    The reference is read when a pipeline is planned, so that what is wrong with it is said then, and again by
    `preload`, in the process that workers share it with; it does not travel with the stage.
    """

    row_wise = True
    needs_all_fields = True
    actions: ClassVar[tuple[str, ...]] = ("drop", "flag")

    def __init__(
        self, reference: ReferenceSource, text_field: str, action: str, flag_field: str, score_field: str | None
    ) -> None:
        if action not in self.actions:
            raise ValueError(f"{self.name}: action is one of {', '.join(map(repr, self.actions))}, not {action!r}.")
        names = [flag_field, score_field] if action == "flag" else []
        if text_field in names or (len(names) > 1 and names[0] == names[1]):
            raise ValueError(f"{self.name}: text_field, flag_field and score_field must be different fields.")
        self.reference = reference
        self.text_field = text_field
        self.action = action
        self.flag_field = flag_field
        self.score_field = score_field
        self._loaded: tuple[Any, Sequence[str]] | None = None

    @abstractmethod
    def load(self, files: tuple[File, ...]) -> tuple[Any, Sequence[str]]:
        """What finds the reference, made once in a process of the same files, and the names of its entries."""

    @abstractmethod
    def find(self, texts: Texts) -> Matches:
        """What texts have in common with the reference."""

    @abstractmethod
    def wanted(self) -> np.ndarray[Any, Any]:
        """The entries that are looked for: not those that are too short, say."""

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

    def linked(self, before: Sequence[ProcessingStage[Any, Any]], after: Sequence[ProcessingStage[Any, Any]]) -> Self:
        self._loaded = self.load(tuple(self.reference.files()))
        entries, wanted = len(self._loaded[1]), len(self.wanted())
        if not wanted:
            raise PlanError(f"{self.name!r}: none of the {entries:,} entries of the reference is long enough.")
        if wanted < entries:
            few = f"{entries - wanted:,} of the {entries:,} entries of the reference"
            words = f"gristmill: {self.name}: {few} are too short, or have nothing of their own, and are not looked for"
            print(words, file=sys.stderr, flush=True)
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
