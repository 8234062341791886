"""Gopher's test for English: a few of the commonest words must be there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gristmill.kernels.texts import Texts
from gristmill.lazy import np
from gristmill.stages.registry import register
from gristmill.stages.text.filters.document_filter import DocumentFilter

GOPHER_WORDS = ("the", "be", "to", "of", "and", "that", "have", "with")


@register
class StopWordsFilter(DocumentFilter):
    """Keep documents in which at least ``min_words`` different words of a list stand, as they are written there.

    The score is how many different ones there are.
    """

    needs = ("words", "listed_words")

    def __init__(self, min_words: int = 2, words: Sequence[str] = GOPHER_WORDS) -> None:
        self.min_words = min_words
        self.words = tuple(sorted(set(words)))

    def score_batch(self, texts: Texts) -> np.ndarray[Any, Any]:
        return texts.listed_words(self.words).distinct

    def keep_batch(self, scores: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        kept: np.ndarray[Any, Any] = scores >= self.min_words
        return kept

    def rule(self) -> str:
        return f"at least {self.min_words} different words of: {', '.join(self.words)}"
