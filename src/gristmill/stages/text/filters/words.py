"""Filters by a document's words: what stands between white space, as `str.split` gives it.

With ``lang`` "zh" or "ja" words are those that a segmenter finds (see `segmentation`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gristmill.lazy import np
from gristmill.stages.registry import builtin
from gristmill.stages.text.filters.segmentation import words_in
from gristmill.stages.text.filters.thresholds import Array, AtLeast, AtMost, Between, percent, ratio

if TYPE_CHECKING:
    from gristmill.kernels.texts import Texts

COMMON_ENGLISH_WORDS = ("the", "be", "to", "of", "and", "that", "have", "with")


@builtin
class WordCountFilter(Between):
    """Keeps documents of so many words (Gopher: 50 to 100,000). One without words scores 0."""

    name = "word_count"
    needs = ("words",)
    below = "too few words"
    above = "too many words"

    def __init__(self, min_words: int = 50, max_words: int = 100000, lang: str = "en") -> None:
        self.least = min_words
        self.most = max_words
        self.lang = lang

    def score_batch(self, texts: Texts) -> Array:
        return words_in(texts, self.lang).words.count

    def rule(self) -> str:
        return f"{self.least:,} to {self.most:,} words"


@builtin
class MeanWordLengthFilter(Between):
    """Keeps documents whose words are so many characters long on average (Gopher: 3 to 10).

    One without words scores 0.
    """

    name = "mean_word_length"
    needs = ("words",)
    below = "words too short on average"
    above = "words too long on average"

    def __init__(self, min_mean_word_length: float = 3, max_mean_word_length: float = 10, lang: str = "en") -> None:
        self.least = min_mean_word_length
        self.most = max_mean_word_length
        self.lang = lang

    def score_batch(self, texts: Texts) -> Array:
        words = words_in(texts, self.lang).words
        return ratio(words.chars, words.count, empty=0.0)

    def rule(self) -> str:
        return f"words of {self.least:g} to {self.most:g} characters on average"


@builtin
class LongWordFilter(AtMost):
    """Drops documents with a word of more characters than this. One without words scores 0 and is kept."""

    name = "max_word_length"
    needs = ("words",)

    def __init__(self, max_word_length: int = 1000, lang: str = "en") -> None:
        self.most = max_word_length
        self.lang = lang

    def score_batch(self, texts: Texts) -> Array:
        return words_in(texts, self.lang).words.longest

    def rule(self) -> str:
        return f"no word of more than {self.most:,} characters"


@builtin
class SymbolsToWordsFilter(AtMost):
    """Drops documents with too many hash signs, or too many ellipses, for their words (Gopher: 0.1 of either).

    The score is the larger of the two ratios. Symbols are counted wherever they stand, as the rule was published;
    NeMo Curator counts words that are nothing but an ellipsis or one hash sign. An ellipsis is ``...``, U+2026 or
    U+22EF. A document without words scores 1 and is dropped.
    """

    name = "symbol_to_word"
    needs = ("words", "symbols")

    def __init__(self, max_symbol_to_word_ratio: float = 0.1, lang: str = "en") -> None:
        self.most = max_symbol_to_word_ratio
        self.lang = lang

    def score_batch(self, texts: Texts) -> Array:
        symbols = np.maximum(texts.symbols.hashes, texts.symbols.ellipses)
        return ratio(symbols, words_in(texts, self.lang).words.count, empty=1.0)

    def rule(self) -> str:
        return f"at most {self.most:g} hash signs per word, and at most {self.most:g} ellipses"


@builtin
class CommonEnglishWordsFilter(AtLeast):
    """Keeps documents with at least two of: the, be, to, of, and, that, have, with (Gopher). Upper case is not theirs.

    Different ones, as the rule was published and as datatrove has it: "the" twice is one. NeMo Curator counts the
    second as well; so does ``distinct=False``. With ``stop_at_false`` nothing is counted beyond what is asked for: that
    is the largest score. A document without words scores 0.
    """

    name = "common_english_words"
    needs = ("words", "listed_words")

    def __init__(self, min_num_common_words: int = 2, stop_at_false: bool = True, distinct: bool = True) -> None:
        self.least = min_num_common_words
        self.stop_at_false = stop_at_false
        self.distinct = distinct

    def score_batch(self, texts: Texts) -> Array:
        listed = texts.listed_words(COMMON_ENGLISH_WORDS)
        scores = listed.distinct if self.distinct else listed.count
        return np.minimum(scores, self.least) if self.stop_at_false else scores

    def rule(self) -> str:
        kind = "different common English words" if self.distinct else "common English words"
        return f"at least {self.least} {kind} ({', '.join(COMMON_ENGLISH_WORDS)})"


@builtin
class WordsWithoutAlphabetsFilter(AtLeast):
    """Keeps documents of whose words enough have a letter, of any script (Gopher: 80%).

    One without words scores 0 and is dropped.
    """

    name = "words_without_alphabets"
    needs = ("words",)

    def __init__(self, min_words_with_alphabets: float = 0.8, lang: str = "en") -> None:
        self.least = min_words_with_alphabets
        self.lang = lang

    def score_batch(self, texts: Texts) -> Array:
        words = words_in(texts, self.lang).words
        return ratio(words.with_letter, words.count, empty=0.0)

    def rule(self) -> str:
        return f"at least {percent(self.least)} of the words have a letter"
