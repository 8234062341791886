"""``gristmill what-if``: the funnel of a run under other thresholds."""

from __future__ import annotations

import json
import shutil
import textwrap
from collections.abc import Iterator, Sequence
from typing import Any

from gristmill.analysis.stored_pipeline import in_source, stored_stages
from gristmill.analysis.what_if import Funnel, MovedDocument, WhatIf, what_if
from gristmill.cli.target import UsageError
from gristmill.errors import PipelineError
from gristmill.metrics.format import cut, escaped
from gristmill.scores.stored import StoredScores

EXCERPT = 300
"""The number of characters shown of a text."""
SHOWN_REASONS = 30


def show_what_if(
    output: str, changes: Sequence[str], pipeline: str | None, samples: int, as_json: bool
) -> Iterator[str]:
    """Yield the lines to print. Raise `UsageError` if the question cannot be answered."""
    try:
        scores = StoredScores(output)
        stages = _stages(output, pipeline)
        found = what_if(scores, stages, changes, samples, pipeline is not None, in_source(stages))
    except (PipelineError, OSError) as error:
        raise UsageError(str(error)) from None
    if as_json:
        yield json.dumps(found.plain(), indent=2)
        return
    yield from lines(found, max(60, min(120, shutil.get_terminal_size((100, 24)).columns)))


def _stages(output: str, pipeline: str | None) -> Sequence[Any]:
    if pipeline is None:
        return stored_stages(output)
    from gristmill.cli.run import load
    from gristmill.pipeline.planner import flatten

    return flatten(load(pipeline, ())[0].stages)


def lines(found: WhatIf, width: int) -> Iterator[str]:
    """Yield the funnel before and after, and samples."""
    for change in found.changes:
        yield cut(f"{escaped(change.name)}: {change.threshold.value:g} -> {change.value:g}", width)
    if found.coverage:
        yield from textwrap.wrap(f"This covers a part of the run: {found.coverage}.", width)
    yield ""
    yield from _table(found.before, found.after, found.stages, width)
    if found.undecided:
        yield ""
        yield f"{found.undecided.total():,} documents are undecided:"
        for why, n in found.undecided.most_common():
            yield from textwrap.wrap(f"{n:,}: {why}", width, initial_indent="  ", subsequent_indent="    ")
    come, go = ("comes back", "come back"), ("goes", "go")
    for (one, many), n, some in ((come, found.all_back, found.back), (go, found.all_gone, found.gone)):
        if n:
            yield ""
            words = f"1 document {one}" if n == 1 else f"{n:,} documents {many}"
            yield f"{words}{', for example:' if some else ''}"
            for sample in some:
                yield from _sample(sample, width)


def _table(before: Funnel, after: Funnel, stages: Sequence[str], width: int) -> Iterator[str]:
    rows: list[tuple[str, int, int]] = [("read", before.read, after.read)]
    if before.errored or after.errored:
        rows.append(("errored", -before.errored, -after.errored))
    for stage in dict.fromkeys(stages):
        reasons = {why for name, why in (*before.dropped, *after.dropped) if name == stage}
        pairs = {why: (before.dropped[stage, why], after.dropped[stage, why]) for why in reasons}
        if not any(was or now for was, now in pairs.values()):
            continue
        rows.append((stage, -sum(was for was, _ in pairs.values()), -sum(now for _, now in pairs.values())))
        ordered = sorted(pairs.items(), key=lambda one: (-max(one[1]), one[0]))
        rows += [(f"  {why}", -was, -now) for why, (was, now) in ordered[:SHOWN_REASONS] if was or now]
        rest = ordered[SHOWN_REASONS:]
        if rest:
            rows.append((f"  {len(rest):,} more reasons", -sum(w for _, (w, _) in rest), -sum(n for _, (_, n) in rest)))
    if before.made or before.merged:
        rows.append(("made less merged", before.made - before.merged, after.made - after.merged))
    rows.append(("kept", before.kept, after.kept))
    cells = [("", "before", "after", "change")]
    cells += [
        (escaped(name), f"{was:,}", f"{now:,}", f"{now - was:+,}" if now != was else "") for name, was, now in rows
    ]
    sizes = [max(len(row[k]) for row in cells) for k in (1, 2, 3)]
    first = max(12, min(max(len(row[0]) for row in cells), width - sum(sizes) - 6))
    for name, *numbers in cells:
        shown = "  ".join(number.rjust(size) for number, size in zip(numbers, sizes, strict=True))
        yield f"{cut(name, first):<{first}}  {shown}".rstrip()


def _sample(sample: MovedDocument, width: int) -> Iterator[str]:
    words = f"{escaped(sample.ident)}: {escaped(sample.before)} -> {escaped(sample.after)}"
    yield from textwrap.wrap(words, width, initial_indent="  ", subsequent_indent="    ")
    if sample.text is None:
        yield "    its text is not stored"
        return
    more = f" ... ({len(sample.text):,} characters)" if len(sample.text) > EXCERPT else ""
    text = f'"{escaped(sample.text[:EXCERPT])}"{more}'
    yield from textwrap.wrap(text, width, initial_indent="    ", subsequent_indent="    ")
