"""Filters by repetition within a document: lines, paragraphs, n-grams (Gopher: Rae et al. 2021, table A1).

A document without lines, words or characters has no repetition and is kept.
"""

from __future__ import annotations

from gristmill.kernels.texts import Texts
from gristmill.lazy import Array
from gristmill.stages.registry import builtin
from gristmill.stages.text.filters.document_filter import AtLeast, AtMost, ratio
from gristmill.stages.text.filters.words import words_in


@builtin
class RepeatedLinesFilter(AtLeast):
    """Keeps documents in which enough lines are different (Gopher: at most 30% repeat an earlier line).

    The score is the share of different lines. Lines end with ``\\n`` or ``\\r\\n`` and are compared as they are. Blank
    lines do not count. The threshold is the smallest score that is kept, although its name begins with "max".
    """

    name = "repeated_lines"
    needs = ("lines",)
    rule_text = "at least {0.percent} of the lines are different"
    thresholds = {"max_repeated_line_fraction": "least"}

    def __init__(self, max_repeated_line_fraction: float = 0.7) -> None:
        self.least = max_repeated_line_fraction

    def score_batch(self, texts: Texts) -> Array:
        return ratio(texts.lines.distinct, texts.lines.count, empty=1.0)


@builtin
class RepeatedParagraphsFilter(AtLeast):
    """Keeps documents in which enough paragraphs are different (Gopher: at most 30% repeat an earlier one).

    Paragraphs are runs of lines that are not blank. In NeMo Curator they end with two newlines: a third newline begins
    the next paragraph, a blank line with spaces does not end one, and empty paragraphs count. See
    `RepeatedLinesFilter`.
    """

    name = "repeated_paragraphs"
    needs = ("paragraphs",)
    rule_text = "at least {0.percent} of the paragraphs are different"
    thresholds = {"max_repeated_paragraphs_ratio": "least"}

    def __init__(self, max_repeated_paragraphs_ratio: float = 0.7) -> None:
        self.least = max_repeated_paragraphs_ratio

    def score_batch(self, texts: Texts) -> Array:
        return ratio(texts.paragraphs.distinct, texts.paragraphs.count, empty=1.0)


@builtin
class RepeatedLinesByCharFilter(AtLeast):
    """Keeps documents whose different lines have enough of the characters of all lines (Gopher: 80%).

    Newlines do not count. See `RepeatedLinesFilter`.
    """

    name = "repeated_lines_char"
    needs = ("lines",)
    rule_text = "at least {0.percent} of the characters of lines are in different ones"
    thresholds = {"max_repeated_lines_char_ratio": "least"}

    def __init__(self, max_repeated_lines_char_ratio: float = 0.8) -> None:
        self.least = max_repeated_lines_char_ratio

    def score_batch(self, texts: Texts) -> Array:
        return ratio(texts.lines.distinct_chars, texts.lines.chars, empty=1.0)


@builtin
class RepeatedParagraphsByCharFilter(AtLeast):
    """Keeps documents whose different paragraphs have enough of the characters of all (Gopher: 80%).

    Newlines count within paragraphs, not between them. See `RepeatedParagraphsFilter`.
    """

    name = "repeated_paragraphs_char"
    needs = ("paragraphs",)
    rule_text = "at least {0.percent} of the characters of paragraphs are in different ones"
    thresholds = {"max_repeated_paragraphs_char_ratio": "least"}

    def __init__(self, max_repeated_paragraphs_char_ratio: float = 0.8) -> None:
        self.least = max_repeated_paragraphs_char_ratio

    def score_batch(self, texts: Texts) -> Array:
        return ratio(texts.paragraphs.distinct_chars, texts.paragraphs.chars, empty=1.0)


@builtin
class RepeatingTopNGramsFilter(AtMost):
    """Drops documents in which the most frequent n-gram of words has too many of the characters.

    Gopher drops above 20% for n = 2, 18% for 3, 16% for 4. The score is the number of characters in all occurrences
    of the n-gram, divided by the number of all characters of the document, white space included (``length.count``).
    An occurrence has the characters of its words and one for each gap between them, however wide the gap is. Where
    occurrences overlap, each character counts once, so no score is above 1. Of several equally frequent n-grams the one
    that begins first counts. If no n-gram occurs twice, the score is 0.

    NeMo Curator searches the n-gram as a string: also inside longer words, and only with single spaces between words.
    Of several equally frequent n-grams it takes a random one, and documents of fewer than n words score 1. datatrove
    counts overlapping occurrences in full, and n-grams that occur once.
    """

    needs = ("length", "words", "ngrams")
    rule_text = "at most {0.percent} of the characters are in the most frequent {0.n}-gram"
    thresholds = {"max_repeating_ngram_ratio": "most"}

    def __init__(self, n: int = 2, max_repeating_ngram_ratio: float = 0.2, lang: str = "en") -> None:
        self.n = checked(n)
        self.most = max_repeating_ngram_ratio
        self.lang = lang
        self.name = f"repeating_top_{n}grams"

    def score_batch(self, texts: Texts) -> Array:
        chars = words_in(texts, self.lang).ngrams(self.n).top[:, self.n - 1]
        return ratio(chars, texts.length.count, empty=0.0)


@builtin
class RepeatingDuplicateNGramsFilter(AtMost):
    """Drops documents in which repeated n-grams of words have too many of the characters.

    Gopher drops above 15% for n = 5, 14% for 6, and so on to 10% for 10. The score is the number of characters in all
    occurrences except the first of each n-gram, divided by the number of all characters of the document, white space
    included. They are counted as in `RepeatingTopNGramsFilter`: each once, however many n-grams overlap there. This is
    NeMo Curator's measure, except that a document of fewer than n words scores 0 here and 1 there. datatrove does not
    count gaps, and continues after each n-gram that it has found, so it misses overlapping ones.
    """

    needs = ("length", "words", "ngrams")
    rule_text = "at most {0.percent} of the characters are in duplicate {0.n}-grams"
    thresholds = {"max_repeating_duplicate_ngram_ratio": "most"}

    def __init__(self, n: int = 2, max_repeating_duplicate_ngram_ratio: float = 0.2, lang: str = "en") -> None:
        self.n = checked(n)
        self.most = max_repeating_duplicate_ngram_ratio
        self.lang = lang
        self.name = f"repeating_dup_{n}gram"

    def score_batch(self, texts: Texts) -> Array:
        chars = words_in(texts, self.lang).ngrams(self.n).duplicate[:, self.n - 1]
        return ratio(chars, texts.length.count, empty=0.0)


def checked(n: int) -> int:
    if isinstance(n, bool) or not isinstance(n, int) or n < 1:
        raise ValueError(f"n of n-grams must be a whole number of at least 1, not {n!r}.")
    return n
