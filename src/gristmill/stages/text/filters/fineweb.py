"""The filters that FineWeb added to those of C4 and Gopher: ratios of lines and words.

A line counts if there is more in it than white space. A document without such a line scores as the worst there is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from gristmill.kernels.texts import Texts
from gristmill.lazy import np
from gristmill.stages.registry import register
from gristmill.stages.text.filters.document_filter import DocumentFilter
from gristmill.stages.text.filters.sentence_marks import SENTENCE_MARKS

Scores = np.ndarray[Any, Any]


def lines_of(text: str) -> list[str]:
    """The lines that are not blank, without their ends, be they Unix's or Windows'."""
    if "\r\n" in text:
        text = text.replace("\r\n", "\n")
    return [line for line in text.split("\n") if line and not line.isspace()]


def _score_each(texts: Texts, score: Callable[[str], float]) -> Scores:
    return np.fromiter((score(text) for text in texts.strings()), dtype=np.float64, count=len(texts))


@register
class LinePunctuationFilter(DocumentFilter):
    """Keep documents of whose lines at least ``min_ratio`` end in a mark that ends sentences.

    ``marks`` are other marks, as one text. ``keep_if_none`` keeps documents in which no line does at all.
    """

    def __init__(self, min_ratio: float = 0.12, marks: str | None = None, keep_if_none: bool = False) -> None:
        self.min_ratio = min_ratio
        self.marks = tuple(SENTENCE_MARKS if marks is None else marks)
        self.keep_if_none = keep_if_none

    def score_batch(self, texts: Texts) -> Scores:
        marks = frozenset(self.marks)

        def score(text: str) -> float:
            lines = lines_of(text)
            return sum(line[-1] in marks for line in lines) / len(lines) if lines else -1.0

        return _score_each(texts, score)

    def keep_batch(self, scores: Scores) -> Scores:
        kept: Scores = scores >= self.min_ratio
        return kept | (scores == 0) if self.keep_if_none else kept

    def rule(self) -> str:
        return f"at least {self.min_ratio:g} of the lines end in punctuation"


@register
class ShortLinesFilter(DocumentFilter):
    """Keep documents of whose lines at most ``max_ratio`` have at most ``length`` characters."""

    def __init__(self, max_ratio: float = 0.67, length: int = 30) -> None:
        self.max_ratio = max_ratio
        self.length = length

    def score_batch(self, texts: Texts) -> Scores:
        length = self.length

        def score(text: str) -> float:
            lines = lines_of(text)
            return sum(len(line) <= length for line in lines) / len(lines) if lines else 1.0

        return _score_each(texts, score)

    def keep_batch(self, scores: Scores) -> Scores:
        kept: Scores = scores <= self.max_ratio
        return kept

    def rule(self) -> str:
        return f"at most {self.max_ratio:g} of the lines have {self.length} characters or fewer"


@register
class DuplicateLineCharsFilter(DocumentFilter):
    """Keep documents of whose characters, newlines aside, at most ``max_ratio`` stand in lines that came before."""

    def __init__(self, max_ratio: float = 0.01) -> None:
        self.max_ratio = max_ratio

    def score_batch(self, texts: Texts) -> Scores:
        return _score_each(texts, _repeated)

    def keep_batch(self, scores: Scores) -> Scores:
        kept: Scores = scores <= self.max_ratio
        return kept

    def rule(self) -> str:
        return f"at most {self.max_ratio:g} of the characters are in lines that came before"


def _repeated(text: str) -> float:
    lines = lines_of(text)
    if not lines:
        return 1.0
    seen: Sequence[str] | set[str] = set(lines)
    if len(seen) == len(lines):
        return 0.0
    repeated = sum(map(len, lines)) - sum(map(len, seen))
    return repeated / (len(text) - text.count("\n") - text.count("\r\n"))


@register
class NewlinesToWordsFilter(DocumentFilter):
    """Keep documents with at most ``max_ratio`` newlines for each word; words are what white space separates."""

    def __init__(self, max_ratio: float = 0.3) -> None:
        self.max_ratio = max_ratio

    def score_batch(self, texts: Texts) -> Scores:
        def score(text: str) -> float:
            words = len(text.split())
            return text.count("\n") / words if words else np.inf

        return _score_each(texts, score)

    def keep_batch(self, scores: Scores) -> Scores:
        kept: Scores = scores <= self.max_ratio
        return kept

    def rule(self) -> str:
        return f"at most {self.max_ratio:g} newlines for each word"
