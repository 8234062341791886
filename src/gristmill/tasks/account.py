"""The report of a stage to the engine on the documents of one batch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass
class Dropped:
    """Documents that a stage dropped, as they were at that point."""

    table: pa.Table
    reasons: Sequence[str]
    """One for each document."""
    scores: Sequence[float | None] | None = None
    places: Any = None
    """The rows of ``table`` that they are, in order; None if they are all."""

    @property
    def rows(self) -> pa.Table:
        """The documents. They are copied at the first access."""
        from gristmill.tasks.document import rows_of

        if self.places is not None:
            self.table, self.places = rows_of(self.table, self.places), None
        return self.table


@dataclass
class Scored:
    """The scores that the rules of a stage gave to documents, in the order of the rules."""

    ids: Any
    """A column with the ids of the documents that reached the first rule."""
    rules: list[tuple[Any, Any]] = field(default_factory=list)
    """For each rule the rows of ``ids`` that reached it, and their scores. None for the rows: all of them."""
    dropped_by: Any = None
    """For each of ``ids`` the number of the rule that dropped it, or -1."""

    def without(self, rows: Sequence[int]) -> Scored:
        """Return the scores without those of some documents: bad records, which no rule keeps or drops."""
        import numpy as np
        import pyarrow as pa

        stays = np.ones(len(self.dropped_by), dtype=bool)
        stays[list(rows)] = False
        places = np.cumsum(stays) - 1
        made = Scored(None if self.ids is None else self.ids.filter(pa.array(stays)), [], self.dropped_by[stays])
        for reached, scores in self.rules:
            of = np.arange(len(stays)) if reached is None else reached
            made.rules.append((places[of[stays[of]]], scores[stays[of]]))
        return made


@dataclass
class BadRecord:
    """A record that could not be read, or the rest of a file that could not."""

    file: str
    position: int
    """The byte where it begins, or the row where bytes mean nothing."""
    reason: str
    raw: bytes = b""
    """Its bytes, cut if there are many."""
    is_failure: bool = False
    """Whether a stage failed on it, so that another attempt may succeed. A malformed record stays malformed."""


@dataclass
class Written:
    """A file that a writer has written."""

    name: str
    """Relative to the writer's folder."""
    rows: int
    size: int
    checksum: str = ""
    """`gristmill.storage.checksum` of its content; empty if the stage did not compute it."""


FOUND = "found "
"""Begins the name of a note on the value of a setting that the next run should begin with: "found token_budget"."""


@dataclass
class Account:
    """The report of one stage about the documents of one task. The engine takes it from what `process` returns.

    Documents that are neither among the results nor mentioned here count as dropped without a reason.
    """

    read: Counter[str] = field(default_factory=Counter)
    """Records taken from each source file, bad ones among them."""
    bytes_read: int = 0
    """Bytes of the files, as stored, read since the batch before; only for a block that becomes several batches."""
    bad: list[BadRecord] = field(default_factory=list)
    dropped: list[Dropped] = field(default_factory=list)
    scored: list[Scored] = field(default_factory=list)
    """Scores of rules, stored beside the output so that other thresholds can be tried."""
    made: int = 0
    """Documents added: a splitter's parts but the first."""
    merged: int = 0
    """Documents that went into others: a joiner's parts but the first."""
    counters: Counter[str] = field(default_factory=Counter)
    """Other things worth counting, by name, such as "redacted e-mail"."""
    notes: dict[str, int] = field(default_factory=dict)
    """Settings that the stage found out for itself and used, by name, such as "token_budget"."""
    written: list[Written] = field(default_factory=list)
