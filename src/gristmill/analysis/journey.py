"""What the steps of a phase did to the documents of one block, with all scores of a document in one row."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import groupby
from typing import Any

from gristmill.errors import PlanError
from gristmill.lazy import Array, np
from gristmill.scores.stored import StoredScores
from gristmill.scores.tables import ScoreFile, ScoreTable, StoredDocument, StoredRule


class Journey:
    """The documents of a block, or of a part of it, through all steps of a phase that stored something."""

    def __init__(self, tables: Sequence[ScoreTable]) -> None:
        self.tables = tables
        self.ids: list[str] | None = None
        """The ids of all documents, if there are several steps."""
        if len(tables) == 1:
            self.size = len(tables[0])
            self._rows: list[Any] = [np.arange(self.size)]
        else:
            rows: dict[str, int] = {}
            self._rows = [np.array([rows.setdefault(one, len(rows)) for one in table.ids()], int) for table in tables]
            self.size, self.ids = len(rows), list(rows)

    def scores(self, rule: StoredRule) -> tuple[Array, Array]:
        """Return the scores of a rule, and which documents have one."""
        if len(self.tables) == 1:
            return self.tables[0].scores(rule)
        found: Array | None = None
        there = np.zeros(self.size, dtype=bool)
        for table, rows in zip(self.tables, self._rows, strict=True):
            values, has = table.scores(rule)
            if has.any():
                if found is None:
                    found = np.zeros(self.size, dtype=values.dtype)
                elif found.dtype != values.dtype:
                    found = found.astype(np.result_type(found, values))
                found[rows[has]] = values[has]
                there[rows[has]] = True
        return (np.zeros(self.size) if found is None else found), there

    @cached_property
    def dropped_by(self) -> tuple[Array, Array]:
        """The stage and the rule that dropped each document; -1 for neither."""
        stage, rule = np.full(self.size, -1), np.full(self.size, -1)
        for table, rows in zip(self.tables, self._rows, strict=True):
            of_stage, of_rule = table.dropped_by
            gone = of_stage >= 0
            stage[rows[gone]], rule[rows[gone]] = of_stage[gone], of_rule[gone]
        return stage, rule

    @cached_property
    def _place(self) -> tuple[Array, Array]:
        """The table of each document and its row there: of the step that dropped it, else of the last one."""
        table_of, row_of = np.zeros(self.size, int), np.zeros(self.size, int)
        for number, (table, rows) in enumerate(zip(self.tables, self._rows, strict=True)):
            table_of[rows], row_of[rows] = number, np.arange(len(table))
        for number, (table, rows) in enumerate(zip(self.tables, self._rows, strict=True)):
            gone = np.flatnonzero(table.dropped_by[0] >= 0)
            table_of[rows[gone]], row_of[rows[gone]] = number, gone
        return table_of, row_of

    def reason(self, row: int) -> str:
        """Return why a document was dropped."""
        table_of, row_of = self._place
        return str(self.tables[table_of[row]].reasons[row_of[row]])

    def document(self, row: int) -> StoredDocument:
        table_of, row_of = self._place
        return self.tables[table_of[row]].document(int(row_of[row]))

    def located(self, rows: Array) -> Iterator[tuple[ScoreTable, Array, Array]]:
        """Yield the tables of documents, each with the rows of these documents there and here."""
        table_of, row_of = self._place
        for number, table in enumerate(self.tables):
            mine = rows[table_of[rows] == number]
            if len(mine):
                yield table, row_of[mine], mine

    def ids_of(self, rows: Array) -> list[str]:
        if self.ids is not None:
            return [self.ids[row] for row in rows.tolist()]
        return self.tables[0].ids(rows)


def journeys(scores: StoredScores, phase: int) -> Iterator[Journey]:
    """Yield the documents of a phase: by task if only one step stored something of a block, else by block."""
    files = sorted((file for file in scores.files if file.phase == phase), key=lambda file: (file.block, file.name))
    for _, group in groupby(files, lambda file: file.block):
        of_block: list[ScoreFile] = list(group)
        if len({file.step for file in of_block}) == 1:
            for file in of_block:
                yield Journey([_checked(scores.table(file))])
        else:
            ordered = sorted(of_block, key=lambda file: (file.step, file.name))
            yield Journey([_checked(scores.table(file)) for file in ordered])


def _checked(table: ScoreTable) -> ScoreTable:
    if table.repeated:
        raise PlanError(
            f"{table.file.place} has {table.repeated:,} documents with the id of another document, so their scores "
            "cannot be distinguished. Give documents that a stage makes ids of their own."
        )
    return table
