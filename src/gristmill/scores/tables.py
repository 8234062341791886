"""Rules, files and tables of stored scores."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from gristmill.lazy import Array, np
from gristmill.ledger.scores import EXCLUDED_ROW, FILE, POSITION, REASON, RULE, STAGE, column_name
from gristmill.storage import Folder
from gristmill.tasks.arrow import FLOATS, int_array, mask_of, one_array
from gristmill.tasks.names import block_of_file

if TYPE_CHECKING:
    import pyarrow as pa

_STEP = re.compile(r"\.step(\d+)\b")


@dataclass(frozen=True)
class Threshold:
    """A value that decides which scores a rule keeps."""

    argument: str
    side: str
    """ "least" if it is the smallest score that is kept, "most" if it is the largest."""
    value: float


@dataclass(frozen=True)
class StoredRule:
    """A rule whose scores are stored."""

    phase: int
    """0 for the last phase of a pipeline, or its only one; phases before it count from 1."""
    stage: int
    """The number of the stage in the plan of its phase."""
    number: int
    """The number of the rule in its stage."""
    stage_name: str
    name: str
    filter: str
    """The name of its class."""
    says: str
    """The rule with its thresholds in words."""
    arguments: Mapping[str, Any] = field(hash=False)
    thresholds: tuple[Threshold, ...]
    is_inverted: bool
    is_numeric: bool
    """Whether its scores are numbers; others are not stored."""

    @property
    def path(self) -> str:
        """The name of the rule with that of its stage: ``gopher-quality.word_count``."""
        return f"{self.stage_name}.{self.name}"

    @property
    def column(self) -> str:
        return column_name(self.stage, self.number)


@dataclass(frozen=True)
class ScoreFile:
    """A file of scores: of one task and one step."""

    phase: int
    name: str
    """Its name as the run wrote it, below the folder of its phase."""
    folder: Folder
    place: str
    """Its current name in ``folder``."""
    documents: int
    size: int
    checksum: str

    @property
    def block(self) -> int:
        return block_of_file(self.task) or 0

    @property
    def step(self) -> int:
        match = _STEP.search(self.task)
        return int(match[1]) if match else 1

    @property
    def task(self) -> str:
        """The name of its task and step: of the file without folder and extension."""
        return self.name.rpartition("/")[2].removesuffix(".arrow")


@dataclass(frozen=True)
class StoredDocument:
    """A document of a file of scores."""

    ident: str
    file: ScoreFile
    row: int
    excluded_row: int | None
    """Its number among the excluded documents of the task; None if no stage of the step dropped it."""


@dataclass(frozen=True)
class NearDocument:
    """A document with a score close to a threshold."""

    score: float
    document: StoredDocument


@dataclass(frozen=True)
class Near:
    """Documents on both sides of a threshold, the nearest first."""

    kept: list[NearDocument]
    dropped: list[NearDocument]


class ScoreTable:
    """The scores of one task and step, with a row for each document."""

    def __init__(self, file: ScoreFile, table: pa.Table, described: Mapping[str, Any]) -> None:
        self.file = file
        self.table = table
        self.stages: list[dict[str, Any]] = list(described["stages"])
        self.repeated = int(described.get("repeated", 0))
        """Documents that cannot be distinguished, because a stage was given the same id twice."""

    def __len__(self) -> int:
        return int(self.table.num_rows)

    @cached_property
    def dropped_by(self) -> tuple[Array, Array]:
        """The stage that dropped each document, and the number of its rule; -1 for neither."""
        return self._integers(STAGE), self._integers(RULE)

    @cached_property
    def excluded_rows(self) -> Array:
        """The number of each document among the excluded ones; -1 for a document that no stage dropped."""
        return self._integers(EXCLUDED_ROW)

    @cached_property
    def reasons(self) -> Sequence[str | None]:
        """Why each document was dropped."""
        found: list[str | None] = self.table.column(REASON).to_pylist()
        return found

    def ids(self, rows: Array | None = None) -> list[str]:
        """Return the ids of all documents, or of some rows."""
        part = self.table.select([FILE, POSITION])
        if rows is not None:
            part = part.take(int_array(rows))
        pairs = zip(part.column(FILE).to_pylist(), part.column(POSITION).to_pylist(), strict=True)
        return [file if position is None else f"{file}#{position}" for file, position in pairs]

    def scores(self, rule: StoredRule) -> tuple[Array, Array]:
        """Return the scores of a rule as it computed them, and whether each document reached it."""
        if rule.phase != self.file.phase or rule.column not in self.table.column_names:
            return np.zeros(len(self)), np.zeros(len(self), dtype=bool)
        return values_of(self.table.column(rule.column))

    def document(self, row: int) -> StoredDocument:
        """Return the document of a row."""
        excluded = int(self.excluded_rows[row])
        return StoredDocument(self.ids(np.array([row]))[0], self.file, int(row), excluded if excluded >= 0 else None)

    def _integers(self, name: str) -> Array:
        values, there = values_of(self.table.column(name))
        return values if there.all() else np.where(there, values, -1)


def values_of(column: pa.ChunkedArray) -> tuple[Array, Array]:
    """Return a column of scores as a rule computed them, and where it has one."""
    array = one_array(column)
    there = mask_of(array.is_valid()) if array.null_count else np.ones(len(array), dtype=bool)
    kind = np.dtype(FLOATS.get(str(array.type), str(array.type)))
    values = np.zeros(0, kind)
    if len(array):
        values = np.frombuffer(array.buffers()[1], kind, count=len(array), offset=array.offset * kind.itemsize)
    is_small = values.dtype.kind in "iu" and values.dtype.itemsize < 8
    return values.astype(np.int64) if is_small else values, there
