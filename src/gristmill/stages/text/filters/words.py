"""Filters by a document's words: runs of characters between white space, as `str.split` returns them.

With ``lang`` "zh" or "ja" a segmenter finds the words (see `words_in`).
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Iterable, Sequence
from functools import cache

from gristmill.kernels.texts import Texts
from gristmill.lazy import Array, np
from gristmill.stages.registry import builtin
from gristmill.stages.text.filters.document_filter import AtLeast, AtMost, InRange, ratio

COMMON_ENGLISH_WORDS = ("the", "be", "to", "of", "and", "that", "have", "with")


@builtin
class WordCountFilter(InRange):
    """Keeps documents of ``min_words`` to ``max_words`` words (Gopher: 50 to 100,000).

    A document without words scores 0.
    """

    name = "word_count"
    needs = ("words",)
    below = "too few words"
    above = "too many words"
    rule_text = "{0.least:,} to {0.most:,} words"
    thresholds = {"min_words": "least", "max_words": "most"}

    def __init__(self, min_words: int = 50, max_words: int = 100000, lang: str = "en") -> None:
        self.least = min_words
        self.most = max_words
        self.lang = lang

    def score_batch(self, texts: Texts) -> Array:
        return words_in(texts, self.lang).words.count


@builtin
class CharacterCountFilter(InRange):
    """Keeps documents of ``min_characters`` to ``max_characters`` characters: captions, for example."""

    needs = ("length",)
    below = "too few characters"
    above = "too many characters"
    rule_text = "{0.least:,} to {0.most:,} characters"
    thresholds = {"min_characters": "least", "max_characters": "most"}

    def __init__(self, min_characters: int = 1, max_characters: float = math.inf) -> None:
        self.least = min_characters
        self.most = max_characters

    def score_batch(self, texts: Texts) -> Array:
        return texts.length.count


@builtin
class MeanWordLengthFilter(InRange):
    """Keeps documents whose mean word length, in characters, is between two bounds (Gopher: 3 to 10).

    A document without words scores 0.
    """

    name = "mean_word_length"
    needs = ("words",)
    below = "words too short on average"
    above = "words too long on average"
    rule_text = "words of {0.least:g} to {0.most:g} characters on average"
    thresholds = {"min_mean_word_length": "least", "max_mean_word_length": "most"}

    def __init__(self, min_mean_word_length: float = 3, max_mean_word_length: float = 10, lang: str = "en") -> None:
        self.least = min_mean_word_length
        self.most = max_mean_word_length
        self.lang = lang

    def score_batch(self, texts: Texts) -> Array:
        words = words_in(texts, self.lang).words
        return ratio(words.chars, words.count, empty=0.0)


@builtin
class LongWordFilter(AtMost):
    """Drops documents with a word of more than ``max_word_length`` characters.

    A document without words scores 0 and is kept.
    """

    name = "max_word_length"
    needs = ("words",)
    rule_text = "no word of more than {0.most:,} characters"
    thresholds = {"max_word_length": "most"}

    def __init__(self, max_word_length: int = 1000, lang: str = "en") -> None:
        self.most = max_word_length
        self.lang = lang

    def score_batch(self, texts: Texts) -> Array:
        return words_in(texts, self.lang).words.longest


@builtin
class SymbolsToWordsFilter(AtMost):
    """Drops documents with too many hash signs, or too many ellipses, per word (Gopher: 0.1 of either).

    The score is the larger of the two ratios. Symbols are counted anywhere, as in the published rule. NeMo Curator
    counts only words that are an ellipsis or one hash sign. An ellipsis is ``...``, U+2026 or
    U+22EF. A document without words scores 1 and is dropped.
    """

    name = "symbol_to_word"
    needs = ("words", "symbols")
    rule_text = "at most {0.most:g} hash signs per word, and at most {0.most:g} ellipses"
    thresholds = {"max_symbol_to_word_ratio": "most"}

    def __init__(self, max_symbol_to_word_ratio: float = 0.1, lang: str = "en") -> None:
        self.most = max_symbol_to_word_ratio
        self.lang = lang

    def score_batch(self, texts: Texts) -> Array:
        symbols = np.maximum(texts.symbols.hashes, texts.symbols.ellipses)
        return ratio(symbols, words_in(texts, self.lang).words.count, empty=1.0)


@builtin
class CommonEnglishWordsFilter(AtLeast):
    """Keeps documents with at least two of: the, be, to, of, and, that, have, with (Gopher), in lower case.

    Different words are counted, as in the published rule and in datatrove: "the" twice counts once. With
    ``distinct=False`` it counts twice, as in NeMo Curator. With ``stop_at_false`` scores above ``min_num_common_words``
    are cut to it. A document without words scores 0.
    """

    name = "common_english_words"
    needs = ("words", "listed_words")
    thresholds = {"min_num_common_words": "least"}

    def __init__(self, min_num_common_words: int = 2, stop_at_false: bool = True, distinct: bool = True) -> None:
        self.least = min_num_common_words
        self.stop_at_false = stop_at_false
        if stop_at_false:  # then the scores depend on it
            self.thresholds = {}
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
    """Keeps documents in which enough words have a letter, of any script (Gopher: 80%).

    A document without words scores 0 and is dropped.
    """

    name = "words_without_alphabets"
    needs = ("words",)
    rule_text = "at least {0.percent} of the words have a letter"
    thresholds = {"min_words_with_alphabets": "least"}

    def __init__(self, min_words_with_alphabets: float = 0.8, lang: str = "en") -> None:
        self.least = min_words_with_alphabets
        self.lang = lang

    def score_batch(self, texts: Texts) -> Array:
        words = words_in(texts, self.lang).words
        return ratio(words.with_letter, words.count, empty=0.0)


@builtin
class StopWordsFilter(AtLeast):
    """Keep documents that contain at least ``min_words`` different words of a list; upper and lower case differ.

    The score is the number of different words.
    """

    needs = ("words", "listed_words")
    thresholds = {"min_words": "least"}

    def __init__(self, min_words: int = 2, words: Sequence[str] = COMMON_ENGLISH_WORDS) -> None:
        self.least = min_words
        self.words = tuple(sorted(set(words)))

    def score_batch(self, texts: Texts) -> Array:
        return texts.listed_words(self.words).distinct

    def rule(self) -> str:
        return f"at least {self.least} different words of: {', '.join(self.words)}"


def words_in(texts: Texts, lang: str) -> Texts:
    """Return texts with white space between the words of ``lang`` (ISO 639-1), as `Texts` finds words.

    Chinese ("zh") is segmented by jieba and Japanese ("ja") by MeCab, if they are installed, one text at a time in
    Python. In other languages words have white space between them: the texts are returned unchanged.
    """
    if lang.lower() not in ("zh", "ja"):
        return texts
    return texts.computed(("words in", lang), lambda: _segmented(texts, segmenter(lang.lower())))


def _segmented(texts: Texts, cut: Callable[[str], Iterable[str]]) -> Texts:
    segmented = Texts.of([" ".join(cut(text)) for text in texts.strings()])
    segmented.gap = 0
    return segmented


@cache
def segmenter(lang: str) -> Callable[[str], Iterable[str]]:
    module, hint = {
        "zh": ("jieba", "jieba: pip install jieba"),
        "ja": ("MeCab", "MeCab with a dictionary: pip install mecab-python3 unidic-lite"),
    }[lang]
    try:
        found = importlib.import_module(module)
    except ImportError:
        raise ImportError(f"words of {lang!r} need {hint}.") from None
    if lang == "zh":
        cut: Callable[[str], Iterable[str]] = found.cut
        return cut
    tagger = found.Tagger("-Owakati")
    return lambda text: tagger.parse(text).split()
