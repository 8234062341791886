"""``gristmill dropped``: dropped documents by reason, and examples."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

from gristmill.cli.target import UsageError
from gristmill.metrics.format import cut, escaped
from gristmill.pipeline.dropped import DroppedDocument, Reasons, dropped_documents, dropped_reasons, output_of_run

EXCERPT = 400
"""The number of characters shown of a text."""


def show_dropped(
    output: str, stage: str | None, reason: str | None, number: int, id_field: str, text_field: str
) -> Iterator[str]:
    """Yield the lines to print: counts if neither stage nor reason is given, else documents."""
    from gristmill.errors import PipelineError

    width = max(40, min(120, shutil.get_terminal_size((80, 24)).columns))
    try:
        folder = output_of_run(output)
        counts = dropped_reasons(folder)
        if stage is None and reason is None:
            yield from _counts(counts, output, width)
            return
        stages = None if stage is None else _matching("stage", stage, sorted({one for one, _ in counts}))
        of_stages = sorted({why for where, why in counts if stages is None or where in stages})
        reasons = None if reason is None else _matching("reason", reason, of_stages)
        found = list(islice(dropped_documents(folder, stages, reasons), number))
    except PipelineError as error:
        raise UsageError(str(error)) from None
    total = sum(
        n for (where, why), n in counts.items() if (not stages or where in stages) and (not reasons or why in reasons)
    )
    yield f"{len(found):,} of {total:,} documents"
    for document in found:
        yield ""
        yield from _document(document, id_field, text_field, width)
    if not found:
        yield f"None of them is in {output}/excluded: the option 'excluded' of the writer keeps all, a share or none."


def _matching(what: str, given: str, known: Sequence[str]) -> list[str]:
    """Return the known names that are meant: the equal one, else those that contain the given text."""
    if given in known:
        return [given]
    found = [name for name in known if given.lower() in name.lower()]
    if not found:
        there = ", ".join(repr(escaped(name)) for name in known[:20]) or "none"
        raise UsageError(f"nothing was dropped with the {what} {given!r}. There is: {there}")
    return found


def _counts(counts: Reasons, output: str, width: int) -> Iterator[str]:
    if not counts:
        yield f"{output}: nothing was dropped"
        return
    yield f"{sum(counts.values()):,} documents were dropped"
    digits = max(len(f"{n:,}") for n in counts.values())
    by_stage: dict[str, list[tuple[str, int]]] = {}
    for (stage, reason), n in sorted(counts.items(), key=lambda one: (-one[1], one[0])):
        by_stage.setdefault(stage, []).append((reason, n))
    for stage, reasons in by_stage.items():
        yield ""
        yield cut(escaped(stage) or "?", width)
        for reason, n in reasons:
            yield cut(f"  {n:>{digits},}  {escaped(reason)}", width)
    yield ""
    yield f"gristmill dropped {output} --reason REASON -n 5 shows examples."


def _document(document: DroppedDocument, id_field: str, text_field: str, width: int) -> Iterator[str]:
    score = "" if document.score is None else f" (score {document.score:.4g})"
    ident = document.record.get(id_field)
    name = "no id" if ident is None else escaped(str(ident)[:EXCERPT])
    why = f"dropped by {escaped(document.stage)}: {escaped(document.reason)}{score}"
    yield from textwrap.wrap(f"{name}: {why}", width, subsequent_indent="  ")
    text = _excerpt(document.record.get(text_field))
    yield from textwrap.wrap(text, width, initial_indent="  ", subsequent_indent="  ")


def _excerpt(text: Any) -> str:
    if not isinstance(text, str):
        return "it has no text"
    more = f" ... ({len(text):,} characters)" if len(text) > EXCERPT else ""
    return f'"{escaped(text[:EXCERPT])}"{more}'
