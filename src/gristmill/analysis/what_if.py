"""The funnel of a run under other thresholds, from its stored scores.

Documents that a changed rule drops, or keeps, are found from the scores. A document that comes back has no scores of
later rules: it is taken from ``excluded/`` and passed through them. What cannot be known is counted as undecided.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from typing import Any

from gristmill import fast_json
from gristmill.analysis.changes import Change, Place, changes_of, ends_of_phases, places_of
from gristmill.analysis.duplicates import after_barriers
from gristmill.analysis.journey import Journey, journeys
from gristmill.analysis.outcomes import PASSED, Outcome, StageOfRules, compare
from gristmill.analysis.replay import Replay, Replayed
from gristmill.errors import OutputDamaged, PipelineError
from gristmill.lazy import Array, np
from gristmill.ledger.commits import LEDGER, PHASES, CommitLog
from gristmill.ledger.entry import Entry
from gristmill.ledger.excluded import QUARANTINE
from gristmill.scores.documents import StoredDocuments
from gristmill.scores.stored import StoredScores
from gristmill.scores.tables import ScoreTable, StoredDocument
from gristmill.stages.protocols import Sink, Source
from gristmill.tasks import ImageBatch
from gristmill.tasks.image import CAPTION

AT_BARRIER = "they come back before {}, which may remove them or others as duplicates"
IN_CLUSTERS = "they were removed as duplicates, in clusters with documents that are now dropped before {}"


@dataclass(frozen=True)
class MovedDocument:
    """A document that comes back, or that goes."""

    ident: str
    before: str
    """Its outcome: "kept", or the stage and the reason of dropping it."""
    after: str
    text: str | None
    """None if it is not stored."""


@dataclass
class Funnel:
    """Documents by outcome."""

    read: int
    made: int
    merged: int
    errored: int
    kept: int
    dropped: Counter[Outcome]

    def plain(self) -> dict[str, Any]:
        dropped = [[stage, reason, n] for (stage, reason), n in sorted(self.dropped.items()) if n]
        return {
            **{name: getattr(self, name) for name in ("read", "made", "merged", "errored", "kept")},
            "dropped": dropped,
        }


@dataclass
class WhatIf:
    """The answer."""

    changes: Sequence[Change]
    before: Funnel
    after: Funnel
    """Of the documents that are decided: undecided ones are in none of its counts."""
    stages: Sequence[str]
    """The names of the stages in order."""
    undecided: Counter[str]
    """Documents whose outcome is not known, by reason."""
    coverage: str
    """The part of the run that scores cover; empty if they cover all of it."""
    back: list[MovedDocument] = field(default_factory=list)
    """Documents that were dropped and are kept."""
    gone: list[MovedDocument] = field(default_factory=list)
    """Documents that were kept and are dropped."""
    all_back: int = 0
    all_gone: int = 0

    def plain(self) -> dict[str, Any]:
        """Return plain values, for JSON."""

        def samples(some: Sequence[MovedDocument]) -> list[dict[str, Any]]:
            return [{"id": s.ident, "before": s.before, "after": s.after, "text": s.text} for s in some]

        return {
            "changes": [{"name": c.name, "before": c.threshold.value, "after": c.value} for c in self.changes],
            "before": self.before.plain(),
            "after": self.after.plain(),
            "undecided": dict(sorted(self.undecided.items())),
            "coverage": self.coverage,
            "back": {"documents": self.all_back, "samples": samples(self.back)},
            "gone": {"documents": self.all_gone, "samples": samples(self.gone)},
        }


def what_if(
    scores: StoredScores,
    stages: Sequence[Any],
    given: Sequence[str],
    samples: int = 3,
    runs_all: bool = False,
    in_source: Callable[[str], Mapping[str, Any] | None] = lambda ident: None,
) -> WhatIf:
    """Return the funnel of a run with other thresholds: ``given`` are texts as ``gopher.word_count.min_words=30``.

    ``stages`` are those of its pipeline, reader first and writer last. Nothing is written. ``runs_all`` runs documents
    through stages that are not gristmill's. Raise `PlanError` for unknown names and damaged scores.
    """
    changes = changes_of(scores, given)
    places = places_of(scores, stages, changes)
    with closing(_Question(scores, stages, places, samples, runs_all, in_source)) as question:
        return question.answer(changes)


class _Question:
    def __init__(
        self,
        scores: StoredScores,
        stages: Sequence[Any],
        places: Mapping[tuple[int, int], Place],
        samples: int,
        runs_all: bool,
        in_source: Callable[[str], Mapping[str, Any] | None],
    ) -> None:
        self.scores = scores
        self.stages = stages
        self.places = places
        self.samples = samples
        reader, writer = stages[0], stages[-1]
        self.documents = StoredDocuments(scores, in_source)
        named = reader.text_field if isinstance(reader, Source) else None
        self.text_field = CAPTION if reader.output_type() == ImageBatch else named or "text"
        fields = writer.fields if isinstance(writer, Sink) else None
        self.replay = Replay(self.documents, runs_all, self.text_field, fields)
        self.changed = {place.number: place.after for place in places.values()}
        self.removed_before: set[str] = set()
        """Documents that reached an earlier barrier and would not."""
        self.failed = failed_documents(scores)

    def close(self) -> None:
        self.replay.close()

    def answer(self, changes: Sequence[Change]) -> WhatIf:
        before = funnel_of(self.scores)
        after = replace(before, dropped=before.dropped.copy())
        found = WhatIf(changes, before, after, [one.name for one in self.stages], Counter(), self.scores.coverage())
        barriers = ends_of_phases(self.stages)
        for phase in [*range(1, self.scores.phases + 1), 0]:
            of_phase = [
                StageOfRules(place, [rule for rule in self.scores.rules if (rule.phase, rule.stage) == key])
                for key, place in self.places.items()
                if key[0] == phase
            ]
            if any(one.place.is_changed for one in of_phase):
                self._phase(phase, of_phase, barriers, found)
        after.dropped = +after.dropped
        return found

    def _phase(self, phase: int, of_phase: Sequence[StageOfRules], barriers: Sequence[int], found: WhatIf) -> None:
        barrier = self.stages[barriers[phase - 1]] if phase else None
        leaving: list[StoredDocument] = []
        entering = 0
        for journey in journeys(self.scores, phase):
            comparison = compare(journey, of_phase)
            for rows, reasons, stage in comparison.gone:
                leaving += self._gone(journey, rows, reasons, stage, found, barrier is not None)
            for stage_of, rule, rows in comparison.back:
                entering += self._back(journey, stage_of, rule, rows, found, None if barrier is None else barrier.name)
        if barrier is not None:
            known = after_barriers(
                self.scores, self.stages, phase, [one.ident for one in leaving], found.before.dropped
            )
            self._left_barrier(known, leaving, found)
            if known.in_clusters:
                found.undecided[IN_CLUSTERS.format(barrier.name)] += known.in_clusters
            self.removed_before.update(one.ident for one in leaving)

    # Documents that go ----------------------------------------------------------------------------------------------

    def _gone(
        self, journey: Journey, rows: Array, reasons: Sequence[str], stage: str, found: WhatIf, to_barrier: bool
    ) -> list[StoredDocument]:
        """Count documents that a rule drops now. Return those that reached the barrier at the end of the phase."""
        reached: list[StoredDocument] = []
        of_stage = journey.dropped_by[0]
        idents = journey.ids_of(rows) if self.removed_before or self.failed or to_barrier else None
        for k, (row, reason) in enumerate(zip(rows.tolist(), reasons, strict=True)):
            if idents is not None and idents[k] in self.removed_before:
                continue
            if of_stage[row] >= 0:
                _move(found, (self._name(journey, row), journey.reason(row)), (stage, reason))
            elif idents is not None and idents[k] in self.failed:
                found.after.errored -= 1
                found.after.dropped[stage, reason] += 1
            elif to_barrier:
                found.after.dropped[stage, reason] += 1
                reached.append(journey.document(row))
            else:
                _move(found, PASSED, (stage, reason))
                found.all_gone += 1
                if len(found.gone) < self.samples:
                    self._sample_gone(journey.document(row), (stage, reason), found)
        return reached

    def _name(self, journey: Journey, row: int) -> str:
        """Return the name of the stage that dropped a document."""
        number = int(journey.dropped_by[0][row])
        phase = journey.tables[0].file.phase
        place = self.places.get((phase, number))
        if place is not None:
            return str(place.before.name)
        known = next((key, one) for key, one in self.places.items() if key[0] == phase)
        return str(self.stages[known[1].number + number - known[0][1]].name)

    def _sample_gone(self, document: StoredDocument, now: Outcome, found: WhatIf) -> None:
        with suppress(PipelineError, OSError):
            record = self.documents.find([document])[document] or {}
            text = record.get(self.text_field)
            shown = text if isinstance(text, str) else None
            found.gone.append(MovedDocument(document.ident, "kept", _words(now), shown))

    def _left_barrier(self, known: Any, leaving: Sequence[StoredDocument], found: WhatIf) -> None:
        """Take documents that reached a barrier, and would not, out of the counts."""
        for document in leaving:
            outcome = known.outcomes.get(document.ident, PASSED)
            if document.ident in self.failed:
                found.after.errored -= 1
            elif outcome == PASSED:
                found.after.kept -= 1
                found.all_gone += 1
                if len(found.gone) < self.samples:
                    self._sample_gone(document, ("", "a changed rule"), found)
            else:
                found.after.dropped[outcome] -= 1

    # Documents that come back ---------------------------------------------------------------------------------------

    def _back(
        self, journey: Journey, stage: StageOfRules, rule: int, rows: Array, found: WhatIf, barrier: str | None
    ) -> int:
        """Count documents that a rule keeps now."""
        if self.removed_before:
            idents = journey.ids_of(rows)
            rows = rows[[ident not in self.removed_before for ident in idents]]
        after = self._after(stage, rule)
        for table, there, here in journey.located(rows):
            texts = 3 * self.samples if len(found.back) < self.samples else 0  # some of them fail a later rule
            replayed = self.replay.run(table, there, after, texts)
            self._count_back(journey, table, there, here, replayed, found, barrier)
        return len(rows)

    def _after(self, stage: StageOfRules, rule: int) -> list[tuple[str, Any]]:
        """Return the stages after a rule, each with its name in the ledger, with the changed thresholds."""
        now = stage.place.after
        number = stage.place.number
        later = [(one.name, self.changed.get(k, one)) for k, one in enumerate(self.stages) if k > number]
        return [*((now.name, part) for part in now.after_scored_rule(rule)), *later]

    def _count_back(
        self,
        journey: Journey,
        table: ScoreTable,
        there: Array,
        here: Array,
        replayed: Replayed,
        found: WhatIf,
        barrier: str | None,
    ) -> None:
        names = {row: self._name(journey, row) for row in here.tolist()}
        for place, row in enumerate(here.tolist()):
            was = (names[row], journey.reason(row))
            why = replayed.undecided.get(place)
            now = replayed.outcomes.get(place)
            if why is None and now == PASSED and barrier is not None:
                why = AT_BARRIER.format(barrier)
            found.after.dropped[was] -= 1
            if why is not None or now is None:
                found.undecided[why or "their outcome was not reported"] += 1
                continue
            if now != PASSED:
                found.after.dropped[now] += 1
                continue
            found.after.kept += 1
            found.all_back += 1
            if len(found.back) < self.samples:
                ident = table.ids(np.array([there[place]]))[0]
                found.back.append(MovedDocument(ident, _words(was), "kept", replayed.texts.get(place)))


def _move(found: WhatIf, was: Outcome, now: Outcome) -> None:
    for outcome, n in ((was, -1), (now, 1)):
        if outcome == PASSED:
            found.after.kept += n
        else:
            found.after.dropped[outcome] += n


def _words(outcome: Outcome) -> str:
    stage, reason = outcome
    return f"dropped by {stage}: {reason}" if stage else f"dropped by {reason}"


def funnel_of(scores: StoredScores) -> Funnel:
    """Return the counts of a run: of its ledger if it has ended, else of the blocks that are done."""
    whole = _ledger(scores) or _committed(scores)
    return Funnel(whole.documents, whole.made, whole.merged, whole.errored.total(), whole.kept, Counter(whole.dropped))


def _ledger(scores: StoredScores) -> Entry | None:
    if not scores.is_finished:
        return None
    try:
        return Entry.of_plain({**fast_json.loads(scores.folder.read(LEDGER))["total"], "files": []})
    except (FileNotFoundError, fast_json.JSONDecodeError, AttributeError, KeyError, TypeError, ValueError):
        raise OutputDamaged(
            f"{scores.folder.path(LEDGER)} is damaged: it is not what a run wrote. Run the pipeline again, which "
            "writes it again."
        ) from None


def _committed(scores: StoredScores) -> Entry:
    total = Entry()
    logs = [scores.folder.sub(f"{PHASES}/{n}") for n in range(1, scores.phases + 1)] + [scores.folder]
    for number, folder in enumerate(logs):
        done: set[int] = set()
        for block, entry, _ in CommitLog(folder, title=scores.url).commits():
            if block in done:
                continue
            done.add(block)
            total.add(replace(entry, files=[], read=entry.read if number == 0 else Counter(), kept=0))
            total.kept += entry.kept if number == len(logs) - 1 else 0
    return total


def failed_documents(scores: StoredScores) -> set[str]:
    """Return the documents in quarantine, by id."""
    return {f"{one.get('file')}#{one.get('position')}" for one in _quarantined(scores)}


def _quarantined(scores: StoredScores) -> Iterator[Mapping[str, Any]]:
    for name in scores.folder.names(QUARANTINE):
        if not name.endswith(".jsonl"):
            continue
        for line in scores.folder.read(f"{QUARANTINE}/{name}").splitlines():
            with suppress(fast_json.JSONDecodeError):
                record = fast_json.loads(line)
                if isinstance(record, dict):
                    yield record
