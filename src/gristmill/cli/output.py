"""``gristmill dropped``, ``explain`` and ``verify``: what happened to the documents of an output."""

from __future__ import annotations

import os
import shutil
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

from gristmill.cli.target import UsageError
from gristmill.errors import PipelineError
from gristmill.images.formats import format_of
from gristmill.images.shown import facts, image_of
from gristmill.lazy import np
from gristmill.ledger.dropped import (
    DroppedDocument,
    Reasons,
    dropped_documents,
    dropped_reasons,
    output_of_run,
    text_field_of,
)
from gristmill.metrics.format import cut, escaped, size
from gristmill.tasks.image import CAPTION, IMAGE_ID
from gristmill.videos.shown import clip_bytes, is_video, name_of, words

if TYPE_CHECKING:
    from gristmill.pipeline import Pipeline
    from gristmill.pipeline.explain import Explanation, StageReport


OK, FAILED = 0, 1
EXCERPT = 400
"""The number of characters shown of a dropped text."""
_LONGEST = 300
"""The number of characters shown of a value."""
SHOWN = 100
"""The most problems that are printed."""


def show_dropped(
    output: str, stage: str | None, reason: str | None, number: int, id_field: str, text_field: str | None
) -> Iterator[str]:
    """Yield the lines to print: counts if neither stage nor reason is given, else documents.

    Without ``text_field`` the texts are in the field that the run has read.
    """
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
        text_field = text_field or text_field_of(folder)
    except PipelineError as error:
        raise UsageError(str(error)) from None
    total = sum(
        n for (where, why), n in counts.items() if (not stages or where in stages) and (not reasons or why in reasons)
    )
    yield f"{len(found):,} of {total:,} documents"
    for document in found:
        yield ""
        yield from _document(document, id_field, text_field, width)
    yield from _missing_fields(found, {"--id-field": id_field, "--text-field": text_field}, width)
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


def _missing_fields(found: Sequence[DroppedDocument], options: Mapping[str, str], width: int) -> Iterator[str]:
    """Yield a hint for each option whose field none of the documents has."""
    of_text = [one.record for one in found if image_of(one.record) is None and not is_video(one.record)]
    there = list(dict.fromkeys(name for record in of_text for name in record))
    for option, name in options.items():
        if there and name not in there:
            names = escaped(", ".join(there[:20]))
            yield ""
            yield from textwrap.wrap(f"No field {name!r}. Name another one with {option}: {names}", width)


def _document(document: DroppedDocument, id_field: str, text_field: str, width: int) -> Iterator[str]:
    score = "" if document.score is None else f" (score {document.score:.4g})"
    record = document.record
    image = image_of(record)
    own_name = name_of(record) if is_video(record) else None if image is None else record.get(IMAGE_ID)
    ident = record.get(id_field, own_name)
    name = f"no {id_field!r}" if ident is None else escaped(str(ident)[:EXCERPT])
    why = f"dropped by {escaped(document.stage)}: {escaped(document.reason)}{score}"
    yield from textwrap.wrap(f"{name}: {why}", width, subsequent_indent="  ")
    if image is not None:
        yield f"  {described(image)}"
        text_field = text_field if text_field in record else CAPTION
    if is_video(record):
        clip = clip_bytes(record)
        yield f"  {words(record, '' if clip is None else size(len(clip)))}"
        text_field = text_field if text_field in record else CAPTION
        if record.get(text_field) is None:
            return
    text = _excerpt(record.get(text_field), text_field)
    yield from textwrap.wrap(text, width, initial_indent="  ", subsequent_indent="  ")


def described(image: bytes) -> str:
    """Return an image as its format and size.

    >>> described(b"")
    'no known image, 0 B'
    """
    known = facts(image)
    return known.words(size(known.bytes))


def _excerpt(text: Any, text_field: str) -> str:
    if not isinstance(text, str):
        return f"no text in {text_field!r}"
    more = f" ... ({len(text):,} characters)" if len(text) > EXCERPT else ""
    return f'"{escaped(text[:EXCERPT])}"{more}'


def explain_document(output: str, ident: str, target: str | None, id_field: str) -> list[str]:
    """Return the lines to print. Raise `UsageError` if the document or the pipeline does not exist."""
    from gristmill.pipeline.explain import explain
    from gristmill.pipeline.planner import flatten

    width = max(60, min(120, shutil.get_terminal_size((100, 24)).columns))
    try:
        pipeline = _pipeline(output, target)
        return list(lines(explain(flatten(pipeline.stages), ident, id_field), width))
    except PipelineError as error:
        raise UsageError(str(error)) from None


def _pipeline(output: str, target: str | None) -> Pipeline:
    """Return the pipeline that is named, or that the output folder has stored."""
    if target is not None:
        from gristmill.cli.run import load

        return load(target, ())[0]
    from gristmill.config.load import load as load_file
    from gristmill.pipeline import Pipeline
    from gristmill.pipeline.documents import remembered

    text = remembered(output)
    if text is None:
        raise UsageError(
            f"{output} was made by a pipeline that cannot be written as YAML: name it with --pipeline FILE.py:NAME"
        )

    def refuse(module: str) -> None:
        raise UsageError(
            f"the pipeline that {output} remembers imports {module}, and what a folder of data names is not run: "
            "if you trust it, name the pipeline with --pipeline FILE.yaml"
        )

    return Pipeline.of_file(load_file(text, announce=refuse))


def lines(explanation: Explanation, width: int) -> Iterator[str]:
    yield explanation.document
    for name, value in explanation.fields.items():
        yield from textwrap.wrap(f"  {name}: {_shown(value)}", width, subsequent_indent="    ")
    is_dropped = False
    for number, stage in enumerate(explanation.stages, 1):
        yield ""
        yield f"{number}. {stage.name}{' (not reached)' if is_dropped else ''}: {stage.verdict}"
        yield from _stage(stage, width)
        is_dropped = is_dropped or stage.drops
    yield ""
    yield "kept" if explanation.kept else "dropped"


def _stage(stage: StageReport, width: int) -> Iterator[str]:
    if stage.features:
        values = ", ".join(f"{name} {_number(value)}" for name, value in stage.features.items())
        yield from textwrap.wrap(f"   features: {values}", width, subsequent_indent="     ")
    names = max((len(finding.name) for finding in stage.findings), default=0)
    for finding in stage.findings:
        mark = "ok  " if finding.keep else "DROP"
        rule = f"  ({finding.rule})" if finding.rule else ""
        reason = f"  {finding.reason}" if finding.reason and finding.reason != finding.name else ""
        yield f"   {mark} {finding.name:<{names}}  {_number(finding.score):>10}{rule}{reason}"
    for name, (before, after) in stage.changes.items():
        before, after = _from_where_they_differ(before, after)
        yield from textwrap.wrap(f"   {name} was {_shown(before)}", width, subsequent_indent="     ")
        yield from textwrap.wrap(f"   {name} is  {_shown(after)}", width, subsequent_indent="     ")
    for name, count in stage.counted.items():
        yield f"   {name}: {count}"
    for note in stage.notes:
        yield from textwrap.wrap(f"   {note}", width, subsequent_indent="     ")


def _from_where_they_differ(before: Any, after: Any) -> tuple[Any, Any]:
    """Return two texts with the same beginning from shortly before the first difference."""
    if not isinstance(before, str) or not isinstance(after, str):
        return before, after
    same = len(os.path.commonprefix([before, after])) - _LONGEST // 2  # noqa: RUF071  # no paths
    return (before, after) if same <= 0 else (f"... {before[same:]}", f"... {after[same:]}")


def _number(value: Any) -> str:
    plain = value.item() if isinstance(value, np.generic) else value
    if isinstance(plain, bool) or not isinstance(plain, int | float):
        return _shown(plain)
    return f"{plain:,}" if isinstance(plain, int) else f"{plain:.4g}"


def _shown(value: Any) -> str:
    if isinstance(value, bytes):
        return described(value) if format_of(value) is not None else f"{size(len(value))} of binary data"
    text = repr(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]} ... ({len(text):,} characters)"


def verify(output: str) -> int:
    """Print the problems of an output. Raise `UsageError` if it cannot be verified."""
    from gristmill.pipeline.verify import Verified, verify_output

    try:
        found: Verified = verify_output(output)
    except (PipelineError, OSError) as error:
        raise UsageError(str(error)) from None
    for problem in found.problems[:SHOWN]:
        print(problem)
    if len(found.problems) > SHOWN:
        print(f"and {len(found.problems) - SHOWN:,} more")
    print(found.summary())
    return FAILED if found.problems else OK
