"""The stored scores of a run, from a bounded part of their files: distributions of kept and dropped documents by rule,
and the kept documents nearest to each threshold.

The files are described in `gristmill.ledger.scores`.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import count, takewhile
from typing import TYPE_CHECKING, Any

from gristmill import fast_json
from gristmill.lazy import Array, np
from gristmill.ledger.commits import PHASES
from gristmill.ledger.scores import FILE, FORMAT, METADATA, POSITION, RULE, SCORES, STAGE, column_name
from gristmill.report.limits import ReportLimits
from gristmill.report.place import Data
from gristmill.report.source import document_of
from gristmill.report.spread import spread
from gristmill.storage import Folder

if TYPE_CHECKING:
    import pyarrow as pa

MOST_SCORES = 200_000
"""Of each rule that are in memory."""
NEAREST = 3
KEPT = "kept"

Key = tuple[str, str]
"""The names of the stage and the rule."""


class RuleScores:
    """The scores of documents that reached a rule: of those that it kept, and of those that it dropped."""

    def __init__(self, limits: Sequence[float]) -> None:
        self.limits = limits
        self.kept: list[Array] = []
        self.dropped: list[Array] = []
        self.size = 0
        self.nearest: list[tuple[float, int, str, float]] = []

    def add(self, scores: Array, is_dropped: Array, table: pa.Table) -> None:
        """Add the rows of a table that have a score."""
        rows = np.flatnonzero(np.isfinite(scores))
        if self.size < MOST_SCORES:
            self.kept.append(scores[rows[~is_dropped[rows]]])
            self.dropped.append(scores[rows[is_dropped[rows]]])
            self.size += len(rows)
        kept = rows[~is_dropped[rows]]
        if not len(kept) or not self.limits:
            return
        far = np.min([np.abs(scores[kept] - limit) for limit in self.limits], axis=0)
        for place in np.argsort(far, kind="stable")[:NEAREST].tolist():
            if len(self.nearest) == NEAREST and -far[place] <= self.nearest[0][0]:
                break
            row = int(kept[place])
            one = (-float(far[place]), -len(self.nearest), _ident(table, row), float(scores[row]))
            (heapq.heappush if len(self.nearest) < NEAREST else heapq.heapreplace)(self.nearest, one)

    def examples(self) -> Iterator[Data]:
        for _, _, ident, score in sorted(self.nearest, key=lambda one: -one[0]):
            yield {"side": KEPT, "score": score, **document_of(ident)}


def stored_scores(folder: Folder, rules: Sequence[Data], limits: ReportLimits) -> dict[Key, RuleScores]:
    """Return the scores of all rules, from some of the files."""
    levels = {(str(rule["stage"]), str(rule["rule"])): _levels(rule) for rule in rules}
    phases = takewhile(folder.exists, (f"{PHASES}/{n}" for n in count(1)))
    files = [(place, name) for place in (folder, *map(folder.sub, phases)) for name in place.names(SCORES)]
    found: dict[Key, RuleScores] = {}
    for place, name in spread(files, limits.scores):
        table = _read(place, f"{SCORES}/{name}")
        if table is not None:
            for key, scores, is_dropped in _columns(table):
                known = found.setdefault(key, RuleScores(levels.get(key, ())))
                known.add(scores, is_dropped, table)
    return found


def _levels(rule: Mapping[str, Any]) -> list[float]:
    levels = (float(rule[name]) for name in ("least", "most") if name in rule)
    return [level for level in levels if math.isfinite(level)]


def _read(folder: Folder, name: str) -> pa.Table | None:
    import pyarrow as pa

    try:
        table = pa.ipc.open_file(pa.BufferReader(folder.read(name))).read_all()
    except (OSError, pa.ArrowInvalid):  # the run is writing it, or it is damaged: the other files are enough
        return None
    return table if METADATA in (table.schema.metadata or {}) else None


def _columns(table: pa.Table) -> Iterator[tuple[Key, Array, Array]]:
    """Yield for each rule with numbers as scores: its names, the scores, and which documents it dropped."""
    described = fast_json.loads(table.schema.metadata[METADATA])
    if described.get("format") != FORMAT:
        return
    stage, rule = (_numbers(table, name, -1) for name in (STAGE, RULE))
    for one in described["stages"]:
        for number, of_rule in enumerate(one["rules"]):
            name = column_name(one["number"], number)
            if of_rule["numeric"] and name in table.column_names:
                is_dropped = (stage == one["number"]) & (rule == number)
                yield (str(one["name"]), str(of_rule["name"])), _numbers(table, name, math.nan), is_dropped


def _numbers(table: pa.Table, name: str, missing: float) -> Array:
    column = table.column(name)
    values: Array = column.to_numpy()
    values = values.astype(np.float64)
    return np.where(np.isnan(values), missing, values) if column.null_count else values


def _ident(table: pa.Table, row: int) -> str:
    file, position = table.column(FILE)[row].as_py(), table.column(POSITION)[row].as_py()
    return str(file) if position is None else f"{file}#{position}"
