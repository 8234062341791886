"""``gristmill stats``: distributions of documents as text, HTML or JSON."""

from __future__ import annotations

import json
import math
import shutil
from argparse import Namespace
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from gristmill.analysis.stats import Statistics, statistics_of
from gristmill.analysis.stats_page import page, place_of, summary, value
from gristmill.cli.target import UsageError
from gristmill.errors import PipelineError, PlanError, TextFieldError
from gristmill.ledger.dropped import DEFAULT_TEXT_FIELD, output_of_run, text_field_of
from gristmill.metrics.format import cut, escaped
from gristmill.scores.sketch import Distribution
from gristmill.scores.stored import StoredScores
from gristmill.scores.tables import StoredRule
from gristmill.scores.top import TopCounts

BINS = 16
BAR = 40
SHOWN_VALUES = 10
SHOWN_GROUPS = 20


def show_stats(args: Namespace) -> Iterator[str]:
    """Yield the lines to print. Raise `UsageError` if the documents cannot be read."""
    try:
        found = statistics_of(
            args.path if len(args.path) > 1 else args.path[0],
            args.text_field or _text_field(args.path),
            args.url_field,
            args.field,
            args.by,
            args.language,
            args.limit,
            args.sample,
        )
        scores = _scores(args.path)
        if args.html is not None:
            Path(args.html).write_text(page(", ".join(args.path), found, scores), encoding="utf-8")
    except TextFieldError as error:
        described = str(error).partition("\n")[0].partition(": ")[2]
        raise UsageError(f"{described}\n    Name the field with the text: --text-field FIELD.") from None
    except (PipelineError, ImportError, OSError) as error:
        raise UsageError(str(error)) from None
    if args.json:
        yield json.dumps(plain(found, scores), indent=2)
        return
    yield from lines(found, scores, max(60, min(120, shutil.get_terminal_size((80, 24)).columns)))
    if args.html is not None:
        yield f"wrote {escaped(args.html)}"


def _text_field(paths: Sequence[str]) -> str:
    """Return the field that the run has read, if the path is its output."""
    if len(paths) == 1:
        with suppress(PlanError):
            return text_field_of(output_of_run(paths[0]))
    return DEFAULT_TEXT_FIELD


def _scores(paths: Sequence[str]) -> list[tuple[StoredRule, Distribution]]:
    """Return the scores that a run has stored, if the path is its output."""
    if len(paths) != 1:
        return []
    with suppress(PlanError):  # it is no output of a run, or has no scores
        stored = StoredScores(paths[0])
        return list(stored.distributions().items())
    return []


def plain(found: Statistics, scores: Sequence[tuple[StoredRule, Distribution]]) -> dict[str, Any]:
    """Return plain values, for JSON."""
    return {
        "by": found.by,
        "errored": found.errored,
        "groups": [
            {
                "name": name,
                "documents": group.documents,
                "numbers": {key: _plain_numbers(numbers) for key, numbers in group.numbers.items()},
                "values": {
                    key: {"most_common": values.most_common(100), "total": values.total, "error": values.error}
                    for key, values in group.values.items()
                },
            }
            for name, group in _ordered(found)
        ],
        "scores": [
            {
                "rule": rule.path,
                "thresholds": {one.argument: one.value for one in rule.thresholds if math.isfinite(one.value)},
                **_plain_numbers(numbers),
            }
            for rule, numbers in scores
        ],
    }


def _plain_numbers(numbers: Distribution) -> dict[str, Any]:
    histogram = numbers.shown()
    return {
        "count": numbers.count,
        "missing": numbers.missing,
        **({name: number for name, number in summary(numbers)} if numbers.count else {}),
        "edges": list(histogram.edges),
        "counts": list(histogram.counts),
    }


def _ordered(found: Statistics) -> list[tuple[str, Any]]:
    return sorted(found.groups.items(), key=lambda one: (-one[1].documents, one[0]))


def lines(found: Statistics, scores: Sequence[tuple[StoredRule, Distribution]], width: int) -> Iterator[str]:
    """Yield all distributions."""
    groups = _ordered(found)
    yield f"{sum(group.documents for _, group in groups):,} documents"
    if found.errored:
        yield f"{found.errored:,} records could not be read"
    for name, group in groups[:SHOWN_GROUPS]:
        if found.by is not None:
            yield ""
            yield cut(f"{escaped(found.by)} {escaped(name)}: {group.documents:,} documents", width)
        for key, numbers in group.numbers.items():
            yield from _numbers(key, numbers, width, is_short=found.by is not None)
        for key, values in group.values.items():
            yield from _values(key, values, width)
    if len(groups) > SHOWN_GROUPS:
        yield ""
        yield f"and {len(groups) - SHOWN_GROUPS:,} more groups: --json and --html have all of them"
    for rule, numbers in scores:
        marks = [one.value for one in rule.thresholds]
        yield from _numbers(f"{rule.path} ({rule.says})", numbers, width, marks=marks)


def _numbers(
    name: str, numbers: Distribution, width: int, is_short: bool = False, marks: Sequence[float] = ()
) -> Iterator[str]:
    yield ""
    yield cut(escaped(name), width)
    if not numbers.count:
        yield "  no numbers"
        return
    words = ", ".join(f"{word} {value(number)}" for word, number in summary(numbers))
    yield cut(f"  {words}{f', {numbers.missing:,} missing' if numbers.missing else ''}", width)
    if is_short:
        return
    histogram = numbers.shown(BINS)
    most = max(histogram.counts)
    labels = [value(edge) for edge in histogram.edges]
    left = max(map(len, labels))
    digits = max(len(f"{n:,}") for n in histogram.counts)
    bars = max(10, min(BAR, width - left - digits - 16))
    places = {mark: place_of(histogram, mark) for mark in marks}
    for k, n in enumerate(histogram.counts):
        here = [value(mark) for mark, place in places.items() if place is not None and int(place) == k]
        note = f"  <- {', '.join(here)}" if here else ""
        bar = "█" * round(n / most * bars) or ("▏" if n else "")
        yield f"  {labels[k]:>{left}}  {n:>{digits},}  {bar}{note}".rstrip()


def _values(name: str, values: TopCounts, width: int) -> Iterator[str]:
    shown = values.most_common(SHOWN_VALUES)
    yield ""
    error = f", each count may be too low by up to {values.error:,}" if values.error else ""
    kinds = "more than " if values.error else ""
    yield cut(f"{escaped(name)}: {kinds}{len(values.counts):,} different values{error}", width)
    digits = max((len(f"{n:,}") for _, n in shown), default=1)
    for one, n in shown:
        yield cut(f"  {n:>{digits},}  {n / max(1, values.total):6.1%}  {escaped(one)}", width)
