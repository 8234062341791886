"""Changes of thresholds: their names on the command line, and the stages of a pipeline with other thresholds."""

from __future__ import annotations

import copy
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gristmill.errors import PlanError
from gristmill.near_names import near
from gristmill.scores.stored import StoredScores
from gristmill.scores.tables import StoredRule, Threshold
from gristmill.stages.barrier import BarrierStage
from gristmill.stages.protocols import Scoring
from gristmill.stages.registry import arguments_of

MOST_LISTED = 60


@dataclass(frozen=True)
class Change:
    """Another value of a threshold."""

    name: str
    """Its full name: STAGE.RULE.ARGUMENT."""
    rule: StoredRule
    threshold: Threshold
    value: float


def names_of(scores: StoredScores) -> dict[str, tuple[StoredRule, Threshold]]:
    """Return all thresholds by name. The second rule of a name in a stage is ``RULE#2``."""
    seen: Counter[tuple[int, int, str]] = Counter()
    found: dict[str, tuple[StoredRule, Threshold]] = {}
    for rule in scores.rules:
        seen[rule.phase, rule.stage, rule.name] += 1
        name = numbered(rule.name, seen[rule.phase, rule.stage, rule.name])
        for threshold in rule.thresholds:
            found[f"{rule.stage_name}.{name}.{threshold.argument}"] = rule, threshold
    return found


def numbered(name: str, number: int) -> str:
    return name if number == 1 else f"{name}#{number}"


def changes_of(scores: StoredScores, given: Sequence[str]) -> list[Change]:
    """Return the changes of texts such as ``gopher-quality.word_count.min_words=30``.

    A name may be shortened to its last parts if only one threshold ends with them. Raise `PlanError` for any other.
    """
    if not given:
        raise PlanError(f"no change is given: name a threshold and its value, as in {_example(scores)}.")
    known = names_of(scores)
    changes: dict[str, Change] = {}
    for one in given:
        name, sign, text = one.rpartition("=")
        if not sign or not name:
            raise PlanError(f"{one!r} is no change: write NAME=VALUE, as in {_example(scores)}.")
        full = _full_name(name.strip(), known, scores)
        rule, threshold = known[full]
        if full in changes:
            raise PlanError(f"{full} is given twice: give it one value.")
        changes[full] = Change(full, rule, threshold, _value(one, text))
    return list(changes.values())


def _example(scores: StoredScores) -> str:
    for name, (_, threshold) in names_of(scores).items():
        return f"{name}={threshold.value:g}"
    return "gopher-quality.word_count.min_words=30"


def _value(one: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if math.isnan(value):
        raise PlanError(f"{one!r}: {text.strip()!r} is not a number, which a threshold must be.")
    return int(value) if math.isfinite(value) and value == int(value) and "." not in text else value


def _full_name(name: str, known: Mapping[str, Any], scores: StoredScores) -> str:
    if name in known:
        return name
    found = [one for one in known if one.endswith(f".{name}")]
    if len(found) == 1:
        return found[0]
    if found:
        raise PlanError(f"{name!r} may be {' or '.join(found[:10])}: give the whole name.")
    _check_argument(name, scores)
    begun = [one for one in known if f".{name}." in f".{one}"]  # a stage or a rule is named, without an argument
    endings = {".".join(one.split(".")[-n:]): one for one in known for n in (1, 2, 3)}
    meant = near(name, [*known, *endings])
    best = begun[:3] or ([endings.get(meant, meant)] if meant else [])
    hint = f" Did you mean {' or '.join(best)}?" if best else ""
    listed = "".join(f"\n  {one}  (now {known[one][1].value:g})" for one in list(known)[:MOST_LISTED])
    more = f"\n  and {len(known) - MOST_LISTED} more" if len(known) > MOST_LISTED else ""
    raise PlanError(f"the run has no threshold {name!r}.{hint} There are:{listed or ' none'}{more}")


def _check_argument(name: str, scores: StoredScores) -> None:
    """Raise `PlanError` for an argument that is no threshold: other scores have to be computed."""
    place, _, argument = name.rpartition(".")
    for rule in scores.rules:
        if argument in rule.arguments and (not place or rule.path == place or rule.path.endswith(f".{place}")):
            raise PlanError(
                f"{rule.path}.{argument} changes the scores themselves, so stored scores do not answer this: run the "
                "pipeline with the other value, into another folder."
            )


@dataclass(frozen=True)
class Place:
    """A stage with rules, as it was and as it would be."""

    number: int
    """Its number in the stages of the pipeline."""
    before: Any
    after: Any

    @property
    def is_changed(self) -> bool:
        return self.before is not self.after


def places_of(scores: StoredScores, stages: Sequence[Any], changes: Sequence[Change]) -> dict[tuple[int, int], Place]:
    """Return the stages with rules by phase and number in the plan of the phase.

    Raise `PlanError` if the stages are not those of the run.
    """
    there: dict[tuple[int, int], list[StoredRule]] = {}
    for rule in scores.rules:
        there.setdefault((rule.phase, rule.stage), []).append(rule)
    scoring: list[tuple[int, Any]] = [pair for pair in enumerate(stages) if isinstance(pair[1], Scoring)]
    found: dict[tuple[int, int], Place] = {}
    for (key, rules), (number, stage) in zip(there.items(), scoring, strict=False):
        filters = [one for one, _ in stage.scored_rules()]
        if [one.name for one in filters] != [rule.name for rule in rules] or stage.name != rules[0].stage_name:
            raise PlanError(
                f"the pipeline is not that of {scores.url}: its stage {number + 1} is {stage.name!r}, and the run had "
                f"{rules[0].stage_name!r} there. Name the pipeline of the run with --pipeline."
            )
        by_rule: dict[int, dict[str, float]] = {}
        for change in changes:
            if (change.rule.phase, change.rule.stage) == key:
                by_rule.setdefault(change.rule.number, {})[change.threshold.argument] = change.value
        after = stage
        if by_rule:
            changed = [_with(one, by_rule[n]) if n in by_rule else one for n, one in enumerate(filters)]
            after = stage.with_scored_rules(changed)
        found[key] = Place(number, stage, after)
    if len(found) < len(there):
        raise PlanError(f"the pipeline has fewer stages with rules than the run that wrote {scores.url}.")
    return found


def _with(rule: Any, values: Mapping[str, float]) -> Any:
    """Return a copy of a filter with other thresholds."""
    arguments = arguments_of(rule)
    if arguments is not None:
        try:
            made = type(rule)(**{**arguments, **values})
        except (TypeError, ValueError) as error:
            raise PlanError(f"{rule.name}: {error}") from None
        made.name = rule.name
        return made
    made = copy.copy(rule)
    for argument, value in values.items():
        setattr(made, rule.thresholds[argument], value)
    return made


def ends_of_phases(stages: Sequence[Any]) -> list[int]:
    """Return the numbers of the stages that compare all documents, in order: each ends a phase."""
    return [number for number, stage in enumerate(stages) if isinstance(stage, BarrierStage)]
