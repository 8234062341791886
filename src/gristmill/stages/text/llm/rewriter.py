"""Documents written again by a language model, with five tasks of the kind that Nemotron-CC uses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gristmill.stages.core import ProcessingStage
from gristmill.stages.registry import builtin
from gristmill.stages.text.llm.base import LLMTask, TextBySegments

SEGMENT = "{{ segment }}"
_END = "\n\nWrite only the result, without remarks about it.\n\n<text>\n{{ segment }}\n</text>"
TASKS = {
    "paraphrase": (
        "Write the text below again in other words, in the clear and neutral style of a good encyclopedia. Keep every "
        "fact, name and number. Add nothing that the text does not contain."
    ),
    "qa_pairs": (
        "Write up to eight questions about the text below, each with its answer. Vary them: ask for facts, reasons, "
        "for comparisons, with yes or no, and with answers to choose from. Each question must make sense to a reader "
        "who does not have the text, and the text must contain its answer. Begin questions with "
        '"Question:" and answers with "Answer:".'
    ),
    "distil": (
        "Write a shorter version of the text below that contains all of its important information. Keep terms, names, "
        "numbers and code as they are. Leave out repetition, navigation, advertising and remarks about the page itself."
    ),
    "extract_knowledge": (
        "Write down the knowledge in the text below as connected prose, as a textbook would explain it: definitions, "
        "facts, relations, causes and methods. Omit opinions, anecdotes, and all that is of interest only on this page."
    ),
    "knowledge_list": (
        "List the knowledge in the text below. Write one line for each fact, beginning with a hyphen. Each must be "
        "a full sentence that can be understood without the others. Most specific facts first; no line twice."
    ),
}
"""The tasks that `LLMRewriter` knows by name."""


@builtin
@dataclass(eq=False, repr=False)
class LLMRewriter(LLMTask):
    """Rewrite documents. Long ones are rewritten in segments.

        LLMRewriter(model, "paraphrase", output="text")

    - ``task``: "paraphrase", "qa_pairs", "distil", "extract_knowledge", "knowledge_list"; or instructions of your own.
    - ``output``: the column of the new text; the column of the text itself to replace it.
    - ``segment_chars``: the most characters that the model gets at a time. None: the whole document.
    """

    task: str = "paraphrase"
    output: str = "rewritten"
    segment_chars: int | None = 8000

    def decompose(self) -> list[ProcessingStage[Any, Any]]:
        if not isinstance(self.task, str) or not self.task.strip():
            raise ValueError(f"task must be one of {', '.join(map(repr, TASKS))}, or instructions, not {self.task!r}.")
        if self.task not in TASKS and " " not in self.task.strip():
            raise ValueError(f"there is no task {self.task!r}. Known: {', '.join(TASKS)}. Or write instructions.")
        prompt = self.task if SEGMENT in self.task else TASKS.get(self.task, self.task) + _END
        return [self.llm(TextBySegments(prompt, self.text_field, self.segment_chars), output=self.output)]
