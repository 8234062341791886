"""The rules by which C4 was made: what a page must not hold, which lines stay, and how many sentences must be left."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from gristmill.kernels.texts import Texts
from gristmill.stages.registry import register
from gristmill.stages.text.filters.document_filter import DocumentFilter

Scores = np.ndarray[Any, Any]

END_MARKS = (".", "?", "!", '"')
POLICIES = ("terms of use", "privacy policy", "cookie policy", "uses cookies", "use of cookies", "use cookies")
_CITATION = re.compile(r"\[\d*\]|\[edit\]|\[citation needed\]")
_SENTENCE_END = re.compile(r"[.?!]+[\"')\]\u201d\u2019]*(?=\s|$)")


@register
class PhraseFilter(DocumentFilter):
    """Keep documents that hold none of some phrases; upper and lower case are the same. The score counts them."""

    def __init__(self, phrases: Sequence[str] = ("lorem ipsum",)) -> None:
        if isinstance(phrases, str) or not phrases or not all(phrases):
            raise ValueError("PhraseFilter wants a list of phrases, none of them empty.")
        self.phrases = [phrase.lower() for phrase in phrases]

    def score_batch(self, texts: Texts) -> Scores:
        phrases = self.phrases
        lowered = (text.lower() for text in texts.strings())
        counts = (sum(text.count(phrase) for phrase in phrases) for text in lowered)
        return np.fromiter(counts, dtype=np.int64, count=len(texts))

    def keep_batch(self, scores: Scores) -> Scores:
        kept: Scores = scores == 0
        return kept

    def rule(self) -> str:
        return f"none of: {', '.join(self.phrases)}"


@register
class BadWordsFilter(DocumentFilter):
    """Keep documents without a word or phrase of a list: given here, or in a file with one in each line.

    Words match whole words, in any case. Without a list everything is kept.
    """

    def __init__(self, words: Sequence[str] = (), file: str | None = None) -> None:
        self.words = list(words)
        if file is not None:
            self.words += [line.strip() for line in Path(file).read_text("utf-8").splitlines() if line.strip()]
        longest_first = sorted({word.lower() for word in self.words}, key=lambda word: (-len(word), word))
        pattern = "|".join(map(re.escape, longest_first))
        self._pattern = re.compile(rf"(?<!\w)(?:{pattern})(?!\w)") if pattern else None

    def score_batch(self, texts: Texts) -> Scores:
        pattern = self._pattern
        if pattern is None:
            return np.zeros(len(texts), dtype=np.int64)
        counts = (sum(1 for _ in pattern.finditer(text.lower())) for text in texts.strings())
        return np.fromiter(counts, dtype=np.int64, count=len(texts))

    def keep_batch(self, scores: Scores) -> Scores:
        kept: Scores = scores == 0
        return kept

    def rule(self) -> str:
        return f"none of {len(self.words)} words"


@register
class SentenceCountFilter(DocumentFilter):
    """Keep documents with at least ``min_sentences`` sentences.

    A sentence ends with a mark (``. ? !``, several of them, quotes behind them) before white space or a line's end.
    """

    def __init__(self, min_sentences: int = 3) -> None:
        self.min_sentences = min_sentences

    def score_batch(self, texts: Texts) -> Scores:
        counts = (len(_SENTENCE_END.findall(text)) for text in texts.strings())
        return np.fromiter(counts, dtype=np.int64, count=len(texts))

    def keep_batch(self, scores: Scores) -> Scores:
        kept: Scores = scores >= self.min_sentences
        return kept

    def rule(self) -> str:
        return f"at least {self.min_sentences} sentences"


@register
class C4Lines:
    """A modifier that keeps the lines which C4 would: of enough words, with an end, and not about the page itself.

    Lines go that hold a word of more than ``max_word_length`` characters, that do not end in a terminal mark (or end
    in an ellipsis), that have fewer than ``min_words`` words, or that speak of JavaScript or of policies. Wikipedia's
    marks of citations are taken out of what stays, and white space around lines.
    """

    name = "c4_lines"

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
        """The lines that stay."""
        kept = (self._line(line.strip()) for line in text.splitlines())
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
