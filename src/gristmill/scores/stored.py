"""Read the scores that a run has stored beside its output.

    scores = StoredScores("output/")
    for rule in scores.rules:
        print(rule.path, rule.says, rule.thresholds)
    found = scores.distributions()          # of all rules, in one pass and in bounded memory
    found[rule].shown(40)                   # a histogram
    near = scores.nearest(rule, rule.thresholds[0], 5)
    documents = StoredDocuments(scores)     # gristmill.scores.documents: their texts
    for one in near.dropped:
        print(one.score, documents.find([one.document]))

A table of scores belongs to a task, so one is in memory at a time. Only tables of committed blocks are read, and each
is compared with its checksum.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import count, takewhile
from typing import TYPE_CHECKING, Any

from gristmill import fast_json
from gristmill.errors import PlanError
from gristmill.lazy import Array, np
from gristmill.ledger.commits import DECIDED, LEDGER, PHASES, CommitLog
from gristmill.ledger.dropped import output_of_run
from gristmill.ledger.names import phase_name
from gristmill.ledger.scores import FORMAT, METADATA, SCORES
from gristmill.scores.sketch import Distribution
from gristmill.scores.tables import (
    Near,
    NearDocument,
    ScoreFile,
    ScoreTable,
    StoredRule,
    Threshold,
)
from gristmill.storage import Folder, checksum

if TYPE_CHECKING:
    import pyarrow as pa

HOW = "Run the pipeline again with a writer that has scores=True, which is the default."


class StoredScores:
    """The scores of an output, by rule and by document."""

    def __init__(self, output: str, options: Mapping[str, Any] | None = None) -> None:
        """Raise `PlanError` if ``output`` is not the output of a run, or has no scores."""
        self.url = output
        self.folder = output_of_run(output, options)
        self.log = CommitLog(self.folder)
        phases = list(takewhile(lambda n: self.folder.exists(f"{PHASES}/{n}"), count(1)))
        self.run: dict[str, Any] = self.log.run_json() or {}
        self.phases = len(phases)
        """The phases before the last one."""
        self.is_finished = self.folder.exists(LEDGER)
        self.blocks_done = len({block for block, _, _ in self.log.commits()})
        self.blocks = int((self.run.get("output") or {}).get("blocks") or 0)
        """Of the last phase."""
        self.files = list(self._files(phases))
        if not self.files:
            raise PlanError(
                f"{output} holds no scores: its pipeline has no rules, its writer has scores=False, or an older "
                f"version of gristmill wrote it.\n{HOW}"
                if self.is_finished or self.blocks_done
                else f"{output} holds no scores yet: no block is done. Run the same command again to resume."
            )

    def _files(self, phases: Iterable[int]) -> Iterator[ScoreFile]:
        for number in phases:
            folder = self.folder.sub(f"{PHASES}/{number}")
            is_cleared = _is_cleared(folder)
            for name, documents, size, crc in _of_log(CommitLog(folder, title=self.url)):
                base = name.rpartition("/")[2]
                beside = f"{SCORES}/{phase_name(base, number)}"
                at = (self.folder, beside) if is_cleared else (folder, name)
                yield ScoreFile(number, name, *at, documents, size, crc)
        for name, documents, size, crc in _of_log(self.log):
            yield ScoreFile(0, name, self.folder, name, documents, size, crc)

    def coverage(self) -> str:
        """Describe which part of the run the scores cover; empty if they cover all of it."""
        covered = len({file.block for file in self.files if file.phase == 0})
        parts = []
        if not self.is_finished:
            parts.append(f"the run is not finished: {self.blocks_done:,} of {self.blocks:,} blocks are done")
        if covered < self.blocks_done and any(rule.phase == 0 for rule in self.rules):
            parts.append(f"{covered:,} of {self.blocks_done:,} done blocks have scores")
        return "; ".join(parts)

    @cached_property
    def rules(self) -> list[StoredRule]:
        """All rules, in the order in which documents reach them."""
        found: dict[tuple[int, int, int], StoredRule] = {}
        order = {number: number for number in range(1, self.phases + 1)} | {0: self.phases + 1}
        for file in self.files:
            described = self._described(file)
            for stage in described["stages"]:
                for number, one in enumerate(stage["rules"]):
                    key = (order[file.phase], stage["number"], number)
                    rule = _rule(file.phase, stage, number, one)
                    if key not in found or not rule.is_numeric:
                        found[key] = rule
        return [found[key] for key in sorted(found)]

    def _described(self, file: ScoreFile) -> dict[str, Any]:
        import pyarrow as pa

        with self._plain_errors(file), file.folder.open(file.place) as source:
            schema = pa.ipc.open_file(source).schema
            return _described(schema)

    def tables(self, files: Iterable[ScoreFile] | None = None) -> Iterator[ScoreTable]:
        """Yield the tables of all files, or of some, one at a time. Raise `PlanError` at a damaged one."""
        for file in self.files if files is None else files:
            yield self.table(file)

    def table(self, file: ScoreFile) -> ScoreTable:
        """Return the table of a file. Raise `PlanError` if it is missing or damaged."""
        import pyarrow as pa

        with self._plain_errors(file):
            data = file.folder.read(file.place)
            if file.checksum and checksum(data) != file.checksum:
                raise ValueError("its content is not what was written")
            table = pa.ipc.open_file(io.BytesIO(data)).read_all()
            return ScoreTable(file, table, _described(table.schema))

    def _plain_errors(self, file: ScoreFile) -> _PlainErrors:
        return _PlainErrors(self.url, file)

    def distributions(self, rules: Sequence[StoredRule] | None = None) -> dict[StoredRule, Distribution]:
        """Return the distribution of the scores of all rules, or of some. Memory does not grow with the documents."""
        wanted = [rule for rule in (self.rules if rules is None else rules) if rule.is_numeric]
        found = {rule: Distribution() for rule in wanted}
        for table in self.tables():
            for rule, distribution in found.items():
                values, there = table.scores(rule)
                distribution.add(values[there])
        return found

    def nearest(self, rule: StoredRule, threshold: Threshold | float, number: int = 5) -> Near:
        """Return the documents with the scores nearest to a threshold, that the rule kept and that it dropped."""
        return self.nearest_of([(rule, threshold)], number)[0]

    def nearest_of(self, wanted: Sequence[tuple[StoredRule, Threshold | float]], number: int = 5) -> list[Near]:
        """Return the same as `nearest` for several thresholds, in one pass."""
        found = [Near([], []) for _ in wanted]
        for table in self.tables():
            stage, dropping = table.dropped_by
            for (rule, threshold), near in zip(wanted, found, strict=True):
                values, there = table.scores(rule)
                gone = there & (stage == rule.stage) & (dropping == rule.number)
                for mask, side in ((there & ~gone, near.kept), (gone & _on_side(values, threshold), near.dropped)):
                    _take_nearest(table, values, mask, threshold, side, number)
        return found


def _on_side(values: Array, threshold: Threshold | float) -> Array:
    """Return which scores a threshold may have dropped: of a range, those on its side."""
    if not isinstance(threshold, Threshold):
        return np.ones(len(values), dtype=bool)
    kept: Array = ~(values > threshold.value) if threshold.side == "least" else ~(values < threshold.value)
    return kept


def _take_nearest(
    table: ScoreTable, values: Array, mask: Array, threshold: Threshold | float, best: list[NearDocument], number: int
) -> None:
    """Keep the ``number`` documents that are nearest, among those found so far and those of a table."""
    at = threshold.value if isinstance(threshold, Threshold) else threshold
    rows = np.flatnonzero(mask)
    distances = np.abs(values[rows].astype(np.float64) - at)
    order = np.argsort(distances, kind="stable")[:number]
    found = [NearDocument(float(values[row]), table.document(row)) for row in rows[order]]
    best += found
    best.sort(key=lambda one: abs(one.score - at))
    del best[number:]


class _PlainErrors:
    """Turns the errors of a damaged file into a `PlanError`."""

    def __init__(self, url: str, file: ScoreFile) -> None:
        self.url = url
        self.file = file

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is None or isinstance(error, PlanError):
            return
        if not isinstance(error, OSError | ValueError | KeyError | TypeError):
            return
        path = self.file.folder.path(self.file.place)
        words = "it is missing" if isinstance(error, FileNotFoundError) else str(error).partition("\n")[0]
        raise PlanError(
            f"{path} is damaged: {words}. Run the pipeline of {self.url} again: blocks with damaged files are "
            "processed again."
        ) from None


def _of_log(log: CommitLog) -> Iterator[tuple[str, int, int, str]]:
    """Yield name, documents, size and checksum of the files of scores of a log."""
    done: set[int] = set()
    found: list[tuple[str, int, int, str]] = []
    for block, entry, _ in log.commits():
        if block not in done:
            done.add(block)
            found += [one for one in entry.files if one[0].startswith(f"{SCORES}/")]
    yield from sorted(found)


def _is_cleared(folder: Folder) -> bool:
    try:
        return bool(fast_json.loads(folder.read(DECIDED)).get("cleared"))
    except (FileNotFoundError, fast_json.JSONDecodeError, AttributeError):
        return False


def _described(schema: pa.Schema) -> dict[str, Any]:
    found = fast_json.loads((schema.metadata or {})[METADATA])
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        raise ValueError(f"its format is not {FORMAT}")
    return found


def _rule(phase: int, stage: Mapping[str, Any], number: int, one: Mapping[str, Any]) -> StoredRule:
    thresholds = tuple(Threshold(name, side, float(value)) for name, (side, value) in one["thresholds"].items())
    return StoredRule(
        phase,
        int(stage["number"]),
        number,
        str(stage["name"]),
        str(one["name"]),
        str(one["filter"]),
        str(one["rule"]),
        one["arguments"],
        thresholds,
        bool(one["inverted"]),
        bool(one["numeric"]),
    )
