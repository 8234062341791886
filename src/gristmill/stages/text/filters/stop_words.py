"""Gopher's test for English: a few of the commonest words must be there."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from gristmill.kernels.texts import Texts
from gristmill.stages.registry import register
from gristmill.stages.text.filters.document_filter import DocumentFilter

GOPHER_WORDS = ("the", "be", "to", "of", "and", "that", "have", "with")


@register
class StopWordsFilter(DocumentFilter):
    """Keep documents in which at least ``min_words`` different words of a list stand, in any case.

    The score is how many different ones there are.
    """

    def __init__(self, min_words: int = 2, words: Sequence[str] = GOPHER_WORDS) -> None:
        self.min_words = min_words
        self.words = frozenset(word.lower() for word in words)
        pattern = "|".join(map(re.escape, sorted(self.words)))
        self._pattern = re.compile(rf"(?<!\w)(?:{pattern})(?!\w)")

    def score_document(self, text: str) -> int:
        # Most documents are decided within their first lines; the rest is only looked at where they are not.
        head = len(set(self._pattern.findall(text[:1000].lower())))
        if head == len(self.words) or len(text) <= 1000:
            return head
        return len(set(self._pattern.findall(text.lower())))

    def keep_batch(self, scores: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        kept: np.ndarray[Any, Any] = scores >= self.min_words
        return kept

    def score_batch(self, texts: Texts) -> np.ndarray[Any, Any]:
        return np.fromiter(map(self.score_document, texts.strings()), dtype=np.int64, count=len(texts))

    def rule(self) -> str:
        return f"at least {self.min_words} different words of: {', '.join(sorted(self.words))}"
