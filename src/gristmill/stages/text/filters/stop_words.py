"""Gopher's test for English: a document must contain a few of the commonest words."""

from __future__ import annotations

from collections.abc import Sequence

from gristmill.kernels.texts import Texts
from gristmill.lazy import Array
from gristmill.stages.registry import builtin
from gristmill.stages.text.filters.thresholds import AtLeast
from gristmill.stages.text.filters.words import COMMON_ENGLISH_WORDS


@builtin
class StopWordsFilter(AtLeast):
    """Keep documents that contain at least ``min_words`` different words of a list; upper and lower case differ.

    The score is the number of different words.
    """

    needs = ("words", "listed_words")

    def __init__(self, min_words: int = 2, words: Sequence[str] = COMMON_ENGLISH_WORDS) -> None:
        self.least = min_words
        self.words = tuple(sorted(set(words)))

    def score_batch(self, texts: Texts) -> Array:
        return texts.listed_words(self.words).distinct

    def rule(self) -> str:
        return f"at least {self.least} different words of: {', '.join(self.words)}"
