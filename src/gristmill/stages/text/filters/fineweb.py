"""The filters that FineWeb added to those of C4 and Gopher: ratios of lines and words.

Blank lines count only with ``blank_lines``. A document without lines gets the worst score. With ``exclusive`` a score
at the limit is dropped, too.
"""

from __future__ import annotations

from collections.abc import Callable

from gristmill.kernels.texts import Texts
from gristmill.lazy import Array, np
from gristmill.stages.registry import builtin
from gristmill.stages.text.filters.sentence_marks import SENTENCE_MARKS
from gristmill.stages.text.filters.thresholds import AtLeast, AtMost
from gristmill.stages.text.lines import lines_in


def lines_of(text: str, blank_lines: bool = False) -> list[str]:
    """Return the lines that are not blank, or all lines, without their ends."""
    lines = lines_in(text)
    return lines if blank_lines else [line for line in lines if line and not line.isspace()]


def _score_each(texts: Texts, score: Callable[[str], float]) -> Array:
    return np.fromiter((score(text) for text in texts.strings()), dtype=np.float64, count=len(texts))


@builtin
class LinePunctuationFilter(AtLeast):
    """Keep documents in which at least ``min_ratio`` of the lines end in a mark that ends sentences.

    ``marks`` are other marks, as one text; only there can quotation marks be among them. ``keep_if_none`` keeps
    documents in which no line ends in a mark.
    """

    rule_text = "at least {0.least:g} of the lines end in punctuation"

    def __init__(
        self,
        min_ratio: float = 0.12,
        marks: str | None = None,
        keep_if_none: bool = False,
        blank_lines: bool = False,
        exclusive: bool = False,
    ) -> None:
        self.least = min_ratio
        self.marks = tuple(SENTENCE_MARKS if marks is None else marks)
        self.keep_if_none = keep_if_none
        self.blank_lines = blank_lines
        self.exclusive = exclusive

    def score_batch(self, texts: Texts) -> Array:
        marks, blank_lines = frozenset(self.marks), self.blank_lines

        def score(text: str) -> float:
            lines = lines_of(text, blank_lines)
            return sum(line[-1:] in marks for line in lines) / len(lines) if lines else -1.0

        return _score_each(texts, score)

    def keep_batch(self, scores: Array) -> Array:
        kept = super().keep_batch(scores)
        return kept | (scores == 0) if self.keep_if_none else kept


@builtin
class ShortLinesFilter(AtMost):
    """Keep documents in which at most ``max_ratio`` of the lines have at most ``length`` characters."""

    rule_text = "at most {0.most:g} of the lines have {0.length} characters or fewer"

    def __init__(
        self, max_ratio: float = 0.67, length: int = 30, blank_lines: bool = False, exclusive: bool = False
    ) -> None:
        self.most = max_ratio
        self.length = length
        self.blank_lines = blank_lines
        self.exclusive = exclusive

    def score_batch(self, texts: Texts) -> Array:
        length, blank_lines = self.length, self.blank_lines

        def score(text: str) -> float:
            lines = lines_of(text, blank_lines)
            return sum(len(line) <= length for line in lines) / len(lines) if lines else 1.0

        return _score_each(texts, score)


@builtin
class DuplicateLineCharsFilter(AtMost):
    """Keep documents in which repeated lines have at most ``max_ratio`` of the characters, without newlines."""

    rule_text = "at most {0.most:g} of the characters are in lines that came before"

    def __init__(self, max_ratio: float = 0.01, exclusive: bool = False) -> None:
        self.most = max_ratio
        self.exclusive = exclusive

    def score_batch(self, texts: Texts) -> Array:
        return _score_each(texts, _repeated)


def _repeated(text: str) -> float:
    lines = lines_of(text)
    if not lines:
        return 1.0
    seen = set(lines)
    if len(seen) == len(lines):
        return 0.0
    repeated = sum(map(len, lines)) - sum(map(len, seen))
    return repeated / (len(text) - text.count("\n") - text.count("\r\n"))


@builtin
class NewlinesToWordsFilter(AtMost):
    """Keep documents with at most ``max_ratio`` newlines per word. Words are separated by white space."""

    rule_text = "at most {0.most:g} newlines for each word"

    def __init__(self, max_ratio: float = 0.3) -> None:
        self.most = max_ratio

    def score_batch(self, texts: Texts) -> Array:
        def score(text: str) -> float:
            words = len(text.split())
            return text.count("\n") / words if words else np.inf

        return _score_each(texts, score)
