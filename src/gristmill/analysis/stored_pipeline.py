"""The pipeline that an output has stored."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from gristmill.config.load import load
from gristmill.errors import PipelineError, PlanError
from gristmill.pipeline.documents import remembered
from gristmill.pipeline.planner import flatten
from gristmill.stages.protocols import Source
from gristmill.tasks.document import ID


def stored_stages(output: str) -> list[Any]:
    """Return the stages of the pipeline that an output has stored, reader first and writer last.

    Raise `PlanError` if it cannot be made from YAML without the user's code.
    """
    text = remembered(output)
    if text is None:
        raise PlanError(
            f"{output} was made by a pipeline that cannot be written as YAML: name it with --pipeline FILE.py:NAME"
        )

    def refuse(module: str) -> None:
        raise PlanError(
            f"the pipeline that {output} remembers imports {module}, and what a folder of data names is not run: if "
            "you trust it, name the pipeline with --pipeline FILE.yaml"
        )

    return list(flatten(load(text, announce=refuse).stages))


def in_source(stages: Sequence[Any]) -> Callable[[str], Mapping[str, Any] | None]:
    """Return a function that finds a document of the input by its id; its result is None if it is not there."""

    def found(ident: str) -> Mapping[str, Any] | None:
        from gristmill.pipeline.find_document import find  # few commands need it

        if not stages or not isinstance(stages[0], Source):
            return None
        with suppress(PipelineError, OSError):
            record: Mapping[str, Any] = find(stages[0], ident, ID).to_pylist()[0]
            return record
        return None

    return found
