"""Questions and answers about documents."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Any

from gristmill.stages.core import ProcessingStage
from gristmill.stages.registry import builtin
from gristmill.stages.text.llm.base import TEXT, LLMTask
from gristmill.stages.text.llm.judge import literal

_PROMPT = """\
Write {count} questions about the document below, each with its answer{language}. The document must contain the answer.
Each question must make sense to a reader who does not have the document. {style}

<document>
{text}
</document>"""


@builtin
@dataclass(eq=False, repr=False)
class QAGenerator(LLMTask):
    """Write questions and answers about each document.

    - ``pairs``: the most questions per document.
    - ``style``: more instructions: "Ask as a student would."
    - ``language``: the language of questions and answers; None: that of the document.
    - ``output``: the column, with a list of objects that have ``question`` and ``answer``.
    """

    _: KW_ONLY
    pairs: int = 3
    style: str = ""
    language: str | None = None
    output: str = "qa_pairs"

    def decompose(self) -> list[ProcessingStage[Any, Any]]:
        if isinstance(self.pairs, bool) or not isinstance(self.pairs, int) or self.pairs < 1:
            raise ValueError(f"pairs must be a whole number of at least 1, not {self.pairs!r}.")
        text = {"type": "string", "minLength": 1}
        pair = {
            "type": "object",
            "properties": {"question": text, "answer": text},
            "required": ["question", "answer"],
            "additionalProperties": False,
        }
        schema = {
            "type": "object",
            "properties": {"pairs": {"type": "array", "items": pair, "minItems": 1, "maxItems": self.pairs}},
            "required": ["pairs"],
            "additionalProperties": False,
        }
        language = "" if self.language is None else f", in {self.language}"
        count = f"up to {self.pairs}"
        words = _PROMPT.format(count=count, language=literal(language), style=literal(self.style), text=TEXT)
        return [self.llm(self.template(words), schema=schema, output=None, columns={self.output: "pairs"})]
