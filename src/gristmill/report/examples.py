"""Excluded documents of an output: the distribution of their scores, and those nearest to each threshold."""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gristmill.errors import PlanError
from gristmill.lazy import Array, np
from gristmill.ledger.dropped import DroppedDocument, dropped_in, excluded_files
from gristmill.report.limits import ReportLimits
from gristmill.report.place import Data
from gristmill.report.record import text_and_id
from gristmill.report.spread import spread
from gristmill.report.stored import RuleScores, stored_scores
from gristmill.storage import Folder

BINS = 40
MOST_RULES = 100
"""Rules with a histogram and examples."""
NEAREST = 3
DROPPED = "dropped"
SKEWED = 8
"""Scores of which few are so many times as large as the median are drawn on a logarithmic scale."""


class RuleExamples:
    """The scores and the nearest documents of one rule of one stage."""

    def __init__(self, known: Mapping[str, Any]) -> None:
        self.known = known
        self.scores: list[float] = []
        self.seen = 0
        self._nearest: list[tuple[float, int, Data]] = []

    def add(self, document: DroppedDocument, make: Any) -> None:
        """Add an excluded document; ``make`` makes its example if it is one of the nearest."""
        self.seen += 1
        score = document.score
        if score is not None and math.isfinite(score):
            self.scores.append(float(score))
        far = self._distance(score)
        if len(self._nearest) < NEAREST:
            heapq.heappush(self._nearest, (-far, -self.seen, make(document)))
        elif -far > self._nearest[0][0]:
            heapq.heapreplace(self._nearest, (-far, -self.seen, make(document)))

    def _distance(self, score: float | None) -> float:
        limits = [self.known[name] for name in ("least", "most") if name in self.known]
        if score is None or math.isnan(score) or not limits:
            return math.inf
        return min(abs(score - limit) for limit in limits)

    def examples(self) -> list[Data]:
        return [example for *_, example in sorted(self._nearest, key=lambda one: (-one[0], -one[1]))]


def excluded_examples(folder: Folder, rules: Sequence[Data], limits: ReportLimits) -> Data:
    """Return histograms and examples of excluded documents, from a bounded part of their files.

    ``rules`` are those of the filters, as `report.json` has them.
    """
    by_reason = dict(_by_reason(rules))
    found: dict[tuple[str, str], RuleExamples] = {}
    files = excluded_files(folder)
    chosen = spread(files, limits.files)
    share = max(1 << 16, limits.bytes // max(1, len(chosen)))
    problems: list[str] = []
    read = 0
    for place, name in chosen:
        try:
            for document in dropped_in(place, name, share):
                known = by_reason.get((document.stage, document.reason)) or {
                    "stage": document.stage,
                    "rule": document.reason,
                }
                key = document.stage, str(known["rule"])
                if key not in found and len(found) >= MOST_RULES:
                    continue
                found.setdefault(key, RuleExamples(known)).add(document, _example)
                read += 1
        except (PlanError, FileNotFoundError) as error:
            problems.append(str(error))
    stored = stored_scores(folder, rules, limits)
    for rule in rules:
        key = str(rule["stage"]), str(rule["rule"])
        if key in stored and len(found) < MOST_RULES:
            found.setdefault(key, RuleExamples(rule))
    order = {(str(one["stage"]), str(one["rule"])): i for i, one in enumerate(rules)}
    keys = sorted(found, key=lambda key: (order.get(key, len(order)), key))
    return {
        "read": read,
        "files": len(chosen),
        "files_total": len(files),
        "problems": problems[:10],
        "rules": [_described(found[key], stored.get(key)) for key in keys],
    }


def _by_reason(rules: Sequence[Data]) -> Iterator[tuple[tuple[str, str], Data]]:
    for rule in rules:
        stage = str(rule["stage"])
        for name in ("rule", "below", "above"):
            if name in rule:
                yield (stage, str(rule[name])), rule
        yield (stage, f"not {rule['rule']}"), rule


def _described(rule: RuleExamples, stored: RuleScores | None) -> Data:
    """Return a rule with its examples, and with a histogram: of all documents if scores are stored."""
    made: Data = {**rule.known, "dropped": {"read": rule.seen, "examples": rule.examples()}}
    limits = [rule.known[name] for name in ("least", "most") if name in rule.known]
    kept, dropped = np.zeros(0), np.array(rule.scores)
    if stored is not None:
        kept, dropped = np.concatenate(stored.kept), np.concatenate(stored.dropped)
        made["kept"] = {"examples": list(stored.examples())}
    both = np.concatenate([kept, dropped])
    if len(both) and both.min() < both.max():
        made["histogram"] = histogram(kept, dropped, limits) | {"is_of_all": stored is not None}
    return made


def histogram(kept: Array, dropped: Array, limits: Sequence[float] = ()) -> Data:
    """Return the number of scores in bins of equal width. Scores far from all others are in the first or last bin.

    With ``is_log``, ``low`` and ``high`` are logarithms of 1 plus the score, and the bins are of equal width there.
    """
    both = np.sort(np.concatenate([kept, dropped]))
    least, most = float(both[0]), float(both[-1])
    is_log = least >= 0 and float(both[-1 - len(both) // 100]) > SKEWED * float(both[len(both) // 2]) > 0
    if is_log:
        kept, dropped, both = np.log1p(kept), np.log1p(dropped), np.log1p(both)
        limits = [math.log1p(limit) for limit in limits if limit >= 0]
    low, high = float(both[len(both) // 100]), float(both[-1 - len(both) // 100])
    width = (high - low) or abs(high) or 1.0
    for limit in limits:  # a threshold that no score comes near would leave all scores in one bin
        if low - width <= limit <= high + width:
            low, high = min(low, limit), max(high, limit)
    step = (high - low) / BINS or 1.0
    return {
        "is_log": is_log,
        "low": low,
        "high": high,
        "least": least,
        "most": most,
        "kept": _binned(kept, low, step),
        "dropped": _binned(dropped, low, step),
    }


def _binned(scores: Array, low: float, step: float) -> list[int]:
    places = ((scores - low) / step).astype(np.int64)
    counts: list[int] = np.bincount(places.clip(0, BINS - 1), minlength=BINS).tolist()
    return counts


def _example(document: DroppedDocument) -> Data:
    return {
        "side": DROPPED,
        "reason": document.reason[:300],
        "score": document.score,
        **text_and_id(document.record),
    }
