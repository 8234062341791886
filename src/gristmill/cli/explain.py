"""``gristmill explain``: the stages of one document, as text."""

from __future__ import annotations

import os
import shutil
import textwrap
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from gristmill.cli.target import UsageError
from gristmill.lazy import np

if TYPE_CHECKING:
    from gristmill.pipeline import Pipeline
    from gristmill.pipeline.explain import Explanation, StageReport

_LONGEST = 300


def explain_document(output: str, ident: str, target: str | None, id_field: str) -> list[str]:
    """Return the lines to print. Raise `UsageError` if the document or the pipeline does not exist."""
    from gristmill.errors import PipelineError
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
    for number, stage in enumerate(explanation.stages, 1):
        yield ""
        yield f"{number}. {stage.name}: {stage.verdict}"
        yield from _stage(stage, width)
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
    text = repr(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]} ... ({len(text):,} characters)"
