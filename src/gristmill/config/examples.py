"""Examples for messages about a pipeline in YAML."""

from __future__ import annotations

from gristmill.stages.text.filters import DocumentFilter
from gristmill.stages.text.modifiers import DocumentModifier

_STAGES = (
    (DocumentFilter, "ScoreFilter: {{filter_obj: {}}}"),
    (DocumentModifier, "Modify: {{modifier_fn: {}}}"),
)


def stage_with(cls: type) -> str:
    """Return the end of a message with an example of a stage that takes an object of this class; empty without one."""
    for base, example in _STAGES:
        if issubclass(cls, base):
            return f", as in {example.format(cls.__name__)}"
    return ""
