"""Filters by what is repeated within a document: lines, paragraphs, n-grams (Gopher: Rae et al. 2021, table A1).

A document without lines, words or characters repeats nothing and is kept.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gristmill.stages.registry import builtin
from gristmill.stages.text.filters.segmentation import words_in
from gristmill.stages.text.filters.thresholds import Array, AtLeast, AtMost, percent, ratio

if TYPE_CHECKING:
    from gristmill.kernels.texts import Texts


@builtin
class RepeatedLinesFilter(AtLeast):
    """Keeps documents of whose lines enough are different (Gopher: at most 30% repeat one before).

    The score is different lines by lines. Lines end with ``\\n`` or ``\\r\\n``, are compared as they are, and count
    if they are not blank. The threshold is the smallest score that is kept, whatever its name says.
    """

    name = "repeated_lines"
    needs = ("lines",)

    def __init__(self, max_repeated_line_fraction: float = 0.7) -> None:
        self.least = max_repeated_line_fraction

    def score_batch(self, texts: Texts) -> Array:
        return ratio(texts.lines.distinct, texts.lines.count, empty=1.0)

    def rule(self) -> str:
        return f"at least {percent(self.least)} of the lines are different"


@builtin
class RepeatedParagraphsFilter(AtLeast):
    """Keeps documents of whose paragraphs enough are different (Gopher: at most 30% repeat one before).

    Paragraphs are runs of lines that are not blank. In NeMo Curator they end with two newlines: a third one begins
    the next, a blank line with spaces in it ends none, and empty ones count. See `RepeatedLinesFilter`.
    """

    name = "repeated_paragraphs"
    needs = ("paragraphs",)

    def __init__(self, max_repeated_paragraphs_ratio: float = 0.7) -> None:
        self.least = max_repeated_paragraphs_ratio

    def score_batch(self, texts: Texts) -> Array:
        return ratio(texts.paragraphs.distinct, texts.paragraphs.count, empty=1.0)

    def rule(self) -> str:
        return f"at least {percent(self.least)} of the paragraphs are different"


@builtin
class RepeatedLinesByCharFilter(AtLeast):
    """Keeps documents in whose different lines there are enough of the characters in all lines (Gopher: 80%).

    Newlines count for neither. See `RepeatedLinesFilter`.
    """

    name = "repeated_lines_char"
    needs = ("lines",)

    def __init__(self, max_repeated_lines_char_ratio: float = 0.8) -> None:
        self.least = max_repeated_lines_char_ratio

    def score_batch(self, texts: Texts) -> Array:
        return ratio(texts.lines.distinct_chars, texts.lines.chars, empty=1.0)

    def rule(self) -> str:
        return f"at least {percent(self.least)} of the characters of lines are in different ones"


@builtin
class RepeatedParagraphsByCharFilter(AtLeast):
    """Keeps documents in whose different paragraphs there are enough of the characters in all (Gopher: 80%).

    Newlines count inside paragraphs, not between them. See `RepeatedParagraphsFilter`.
    """

    name = "repeated_paragraphs_char"
    needs = ("paragraphs",)

    def __init__(self, max_repeated_paragraphs_char_ratio: float = 0.8) -> None:
        self.least = max_repeated_paragraphs_char_ratio

    def score_batch(self, texts: Texts) -> Array:
        return ratio(texts.paragraphs.distinct_chars, texts.paragraphs.chars, empty=1.0)

    def rule(self) -> str:
        return f"at least {percent(self.least)} of the characters of paragraphs are in different ones"


@builtin
class RepeatingTopNGramsFilter(AtMost):
    """Drops documents of whose characters too many are in the most frequent n-gram of words.

    Gopher drops above 20% for n = 2, 18% for 3, 16% for 4. The score is the number of characters in all occurrences
    of the n-gram, divided by the number of all characters of the document, white space included (``length.count``).
    An occurrence has the characters of its words and one for each gap between them, however wide the gap is. Where
    occurrences overlap, each character counts once, so no score is above 1. Of several n-grams that are as frequent
    the one that begins first counts. If none occurs twice, the score is 0.

    NeMo Curator looks for the n-gram as a string, inside longer words too, and not where other white space than one
    space is between its words; of several it takes one by chance; documents of fewer than n words score 1. datatrove
    counts overlapping occurrences in full, and n-grams that occur once.
    """

    needs = ("length", "words", "ngrams")

    def __init__(self, n: int = 2, max_repeating_ngram_ratio: float = 0.2, lang: str = "en") -> None:
        self.n = checked(n)
        self.most = max_repeating_ngram_ratio
        self.lang = lang
        self.name = f"repeating_top_{n}grams"

    def score_batch(self, texts: Texts) -> Array:
        chars = words_in(texts, self.lang).ngrams(self.n).top[:, self.n - 1]
        return ratio(chars, texts.length.count, empty=0.0)

    def rule(self) -> str:
        return f"at most {percent(self.most)} of the characters are in the most frequent {self.n}-gram"


@builtin
class RepeatingDuplicateNGramsFilter(AtMost):
    """Drops documents of whose characters too many are in n-grams of words that stood before.

    Gopher drops above 15% for n = 5, 14% for 6, and so on to 10% for 10. The score is the number of characters in all
    occurrences but the first of each n-gram, divided by the number of all characters of the document, white space
    included. They are counted as in `RepeatingTopNGramsFilter`: each once, however many n-grams overlap there. This is
    NeMo Curator's measure, except that a document of fewer than n words scores 0 here and 1 there. datatrove counts no
    gaps, and resumes after an n-gram that it has found, so it misses those that overlap it.
    """

    needs = ("length", "words", "ngrams")

    def __init__(self, n: int = 2, max_repeating_duplicate_ngram_ratio: float = 0.2, lang: str = "en") -> None:
        self.n = checked(n)
        self.most = max_repeating_duplicate_ngram_ratio
        self.lang = lang
        self.name = f"repeating_dup_{n}gram"

    def score_batch(self, texts: Texts) -> Array:
        chars = words_in(texts, self.lang).ngrams(self.n).duplicate[:, self.n - 1]
        return ratio(chars, texts.length.count, empty=0.0)

    def rule(self) -> str:
        return f"at most {percent(self.most)} of the characters are in duplicate {self.n}-grams"


def checked(n: int) -> int:
    if isinstance(n, bool) or not isinstance(n, int) or n < 1:
        raise ValueError(f"n of n-grams is a whole number of at least 1, not {n!r}.")
    return n
