"""Translation by a language model, segment by segment."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gristmill.stages.core import ProcessingStage
from gristmill.stages.registry import builtin
from gristmill.stages.text.llm.base import LLMTask, TextBySegments
from gristmill.stages.text.llm.judge import literal

_PROMPT = """\
Translate the text below{source} into {target}. Keep its meaning, tone and formatting: line breaks, lists, Markdown,
code and placeholders. Do not translate code, addresses and names of products. Write only the translation.

<text>
{segment}
</text>"""


@builtin
@dataclass(eq=False, repr=False)
class Translate(LLMTask):
    """Translate documents. Long ones are translated in segments and joined with the white space that was between them.

    - ``target``: the language, in words: "German".
    - ``source``: the language of the documents; None: the model finds it out.
    - ``output``: the column of the translation; the column of the text itself to replace it.
    - ``segment_chars``: the most characters that the model gets at a time. Splits are between paragraphs if possible,
      else between sentences.
    """

    target: str = "English"
    source: str | None = None
    output: str = "translation"
    segment_chars: int | None = 2000

    def decompose(self) -> list[ProcessingStage[Any, Any]]:
        if not isinstance(self.target, str) or not self.target.strip():
            raise ValueError(f"target must be a language, not {self.target!r}.")
        source = "" if self.source is None else f" from {self.source}"
        words = _PROMPT.format(source=literal(source), target=literal(self.target), segment="{{ segment }}")
        return [self.llm(TextBySegments(words, self.text_field, self.segment_chars), output=self.output)]
