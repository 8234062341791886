"""The outcome of documents under other thresholds, as far as stored scores tell."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from gristmill.analysis.changes import Place
from gristmill.analysis.journey import Journey
from gristmill.lazy import Array, np
from gristmill.scores.tables import StoredRule
from gristmill.stages.text.filters.remaining import reasons_of
from gristmill.stages.text.filters.score_filter import ScoreFilter, mask_of

PASSED = ("", "")
"""The outcome of a document that no stage of the phase drops."""
Outcome = tuple[str, str]
"""Stage and reason."""


@dataclass(frozen=True)
class StageOfRules:
    """A stage of a phase, with its rules as they are stored."""

    place: Place
    rules: Sequence[StoredRule]

    @property
    def number(self) -> int:
        """Its number in the plan of the phase."""
        return self.rules[0].stage


@dataclass
class Comparison:
    """The effect of other thresholds on the documents of a journey."""

    gone: list[tuple[Array, list[str], str]] = field(default_factory=list)
    """Documents that a rule drops that did not drop them, or for another reason: rows, reasons, stage."""
    back: list[tuple[StageOfRules, int, Array]] = field(default_factory=list)
    """Documents that a rule dropped and would keep: the stage, the number of the rule, rows."""


def compare(journey: Journey, stages: Sequence[StageOfRules]) -> Comparison:
    """Return what other thresholds change. Documents that are not in the result have the outcome that they had."""
    found = Comparison()
    alive = np.ones(journey.size, dtype=bool)
    for stage in stages:
        if not stage.place.is_changed:
            alive &= ~_dropped_here(journey, stage)  # and later stages have no scores of them
        elif isinstance(stage.place.after, ScoreFilter) and stage.place.after.invert_all:
            _compare_inverted(journey, stage, alive, found)
        else:
            _compare_rules(journey, stage, alive, found)
    return found


def _dropped_here(journey: Journey, stage: StageOfRules, rule: int | None = None) -> Array:
    of_stage, of_rule = journey.dropped_by
    here: Array = of_stage == stage.number
    return here if rule is None else here & (of_rule == rule)


def _compare_rules(journey: Journey, stage: StageOfRules, alive: Array, found: Comparison) -> None:
    before, after = stage.place.before.scored_rules(), stage.place.after.scored_rules()
    for rule, (was, inverted), (now, _) in zip(stage.rules, before, after, strict=True):
        dropped = alive & _dropped_here(journey, stage, rule.number)
        if was is now:
            alive &= ~dropped
            continue
        values, there = journey.scores(rule)
        rows = np.flatnonzero(alive & there)
        scores = values[rows]
        kept = mask_of(now, scores) ^ inverted
        returned = rows[kept & dropped[rows]]
        if len(returned):
            found.back.append((stage, rule.number, returned))
        _note_gone(journey, stage, found, rows[~kept], reasons_of(now, scores[~kept], inverted), dropped)
        alive[rows[~kept]] = False
        alive[returned] = False


def _note_gone(
    journey: Journey, stage: StageOfRules, found: Comparison, rows: Array, reasons: Sequence[str], dropped: Array
) -> None:
    """Note documents that are dropped, without those that were dropped here for the same reason."""
    differs = [k for k, row in enumerate(rows.tolist()) if not dropped[row] or journey.reason(row) != reasons[k]]
    if differs:
        found.gone.append((rows[differs], [reasons[k] for k in differs], stage.place.after.name))


def _compare_inverted(journey: Journey, stage: StageOfRules, alive: Array, found: Comparison) -> None:
    """For a stage that drops the documents which all of its filters keep."""
    keep_all = np.ones(journey.size, dtype=bool)
    reached = alive.copy()
    for rule, (now, _) in zip(stage.rules, stage.place.after.scored_rules(), strict=True):
        values, there = journey.scores(rule)
        reached &= there
        kept = np.zeros(journey.size, dtype=bool)
        kept[there] = mask_of(now, values[there])
        keep_all &= kept
    dropped = alive & _dropped_here(journey, stage)
    now_dropped = reached & keep_all
    rows = np.flatnonzero(now_dropped)
    names = ", ".join(one.name for one, _ in stage.place.after.scored_rules())
    _note_gone(journey, stage, found, rows, [f"kept by all of {names}"] * len(rows), dropped)
    returned = np.flatnonzero(dropped & ~now_dropped)
    if len(returned):
        found.back.append((stage, len(stage.rules) - 1, returned))
    alive &= ~(dropped | now_dropped)
