"""C4's rules for lines."""

from __future__ import annotations

import re

from gristmill.stages.registry import builtin
from gristmill.stages.text.lines import lines_in
from gristmill.stages.text.modifiers.document_modifier import DocumentModifier

END_MARKS = (".", "?", "!", '"')
POLICIES = ("terms of use", "privacy policy", "cookie policy", "uses cookies", "use of cookies", "use cookies")
_CITATION = re.compile(r"\[\d*\]|\[edit\]|\[citation needed\]")


@builtin
class C4Lines(DocumentModifier):
    """Keeps the lines that C4 keeps: with enough words and an end mark, and not about the page itself.

    A line is removed if it has a word of more than ``max_word_length`` characters, does not end in a terminal mark (or
    ends in an ellipsis), has fewer than ``min_words`` words, or mentions JavaScript or policies. Wikipedia's citation
    marks and white space around lines are removed from the others.
    """

    def __init__(
        self,
        min_words: int = 5,
        max_word_length: int = 1000,
        end_marks: bool = True,
        javascript: bool = True,
        policies: bool = True,
        citations: bool = True,
    ) -> None:
        self.min_words = min_words
        self.max_word_length = max_word_length
        self.end_marks = end_marks
        self.unwanted = (("javascript",) if javascript else ()) + (POLICIES if policies else ())
        self.citations = citations

    def modify_document(self, text: str) -> str:
        kept = (self._line(line.strip()) for line in lines_in(text))
        return "\n".join(line for line in kept if line is not None)

    def _line(self, line: str) -> str | None:
        if len(line) > self.max_word_length and any(len(word) > self.max_word_length for word in line.split()):
            return None
        if self.citations and "[" in line:
            line = _CITATION.sub("", line).rstrip()
        if self.end_marks and (not line.endswith(END_MARKS) or line.endswith("...")):
            return None
        if len(line.split()) < self.min_words:
            return None
        lowered = line.lower()
        return None if any(phrase in lowered for phrase in self.unwanted) else line
