"""What a stage is, in plain values."""

from __future__ import annotations

from typing import Any

from gristmill.stages.core import ProcessingStage
from gristmill.stages.registry import arguments_of


def describe_stage(stage: ProcessingStage[Any, Any]) -> dict[str, Any]:
    """Placeholder until the configuration's own."""
    return {"stage": type(stage).__qualname__, "arguments": repr(arguments_of(stage))}
