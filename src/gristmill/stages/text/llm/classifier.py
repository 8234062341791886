"""Labels by a language model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any

from gristmill.stages.core import ProcessingStage
from gristmill.stages.registry import builtin
from gristmill.stages.text.classifiers.labels import LabelFilter
from gristmill.stages.text.llm.base import TEXT, LLMTask
from gristmill.stages.text.llm.judge import literal

_PROMPT = """\
{question}

{labels}

<document>
{text}
</document>"""
_ONE = "Which one of these labels describes the document below best?"
_ALL = "Which of these labels apply to the document below? Name all that apply, or none."


@builtin
@dataclass(eq=False, repr=False)
class LLMClassifier(LLMTask):
    """Give each document one of some labels, or all that apply. No other answers are possible.

        LLMClassifier(model, {"news": "reports current events", "other": "anything else"}, filter_by=["news"])

    - ``labels``: the labels; or each with a description.
    - ``several``: a document may have several labels, or none. The column then holds lists.
    - ``question``: what to ask, in place of the default.
    - ``output``: the column of the label.
    - ``filter_by``: keep documents with these labels only.
    """

    labels: Sequence[str] | Mapping[str, str]
    _: KW_ONLY
    several: bool = False
    question: str | None = None
    output: str = "label"
    filter_by: Sequence[str] | None = None

    def decompose(self) -> list[ProcessingStage[Any, Any]]:
        names = [] if isinstance(self.labels, str) else [str(label) for label in self.labels]
        if len(names) < 2 or len(set(names)) < len(names):
            raise ValueError(f"labels must be at least two different texts, not {self.labels!r}.")
        if unknown := sorted(set(self.filter_by or ()) - set(names)):
            raise ValueError(f"filter_by names {', '.join(map(repr, unknown))}, which is no label.")
        described = self.labels.items() if isinstance(self.labels, Mapping) else [(name, "") for name in names]
        shown = "\n".join(f"- {name}: {text}".removesuffix(": ") for name, text in described)
        question = self.question or (_ALL if self.several else _ONE)
        words = _PROMPT.format(question=literal(question), labels=literal(shown), text=TEXT)
        label: dict[str, Any] = {"enum": names}
        if self.several:
            label = {"type": "array", "items": {"type": "string", **label}, "maxItems": len(names)}
        schema = {
            "type": "object",
            "properties": {"label": label},
            "required": ["label"],
            "additionalProperties": False,
        }
        asked = self.llm(self.template(words), schema=schema, output=None, columns={self.output: "label"})
        if not self.filter_by:
            return [asked]
        kept = LabelFilter(self.filter_by, self.output)
        kept.name = f"{self.name} filter"
        return [asked, kept]
