"""C4's rules for pages: what a page must not contain, and how many sentences it must have."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from gristmill.kernels.texts import Texts
from gristmill.lazy import Array, np
from gristmill.stages.registry import builtin
from gristmill.stages.text.filters.thresholds import AtLeast, AtMost

_SENTENCE_END = re.compile(r"[.?!]+[\"')\]\u201d\u2019]*(?=\s|$)")


def _counts(texts: Texts, counts: Iterable[int]) -> Array:
    return np.fromiter(counts, dtype=np.int64, count=len(texts))


@builtin
class PhraseFilter(AtMost):
    """Keep documents that contain none of some phrases, in any case. The score is the number of occurrences."""

    most = 0

    def __init__(self, phrases: Sequence[str] = ("lorem ipsum",)) -> None:
        if isinstance(phrases, str) or not phrases or not all(phrases):
            raise ValueError("PhraseFilter needs a list of phrases, none of them empty.")
        self.phrases = [phrase.lower() for phrase in phrases]

    def score_batch(self, texts: Texts) -> Array:
        phrases = self.phrases
        lowered = (text.lower() for text in texts.strings())
        return _counts(texts, (sum(text.count(phrase) for phrase in phrases) for text in lowered))

    def rule(self) -> str:
        return f"none of: {', '.join(self.phrases)}"


@builtin
class BadWordsFilter(AtMost):
    """Keep documents without a word or phrase of a list: given here, or in a file with one in each line.

    Words match whole words, in any case. Without a list everything is kept.
    """

    most = 0

    def __init__(self, words: Sequence[str] = (), file: str | None = None) -> None:
        self.words = list(words)
        if file is not None:
            self.words += [line.strip() for line in Path(file).read_text("utf-8").splitlines() if line.strip()]
        longest_first = sorted({word.lower() for word in self.words}, key=lambda word: (-len(word), word))
        pattern = "|".join(map(re.escape, longest_first))
        self._pattern = re.compile(rf"(?<!\w)(?:{pattern})(?!\w)") if pattern else None

    def score_batch(self, texts: Texts) -> Array:
        pattern = self._pattern
        if pattern is None:
            return np.zeros(len(texts), dtype=np.int64)
        return _counts(texts, (sum(1 for _ in pattern.finditer(text.lower())) for text in texts.strings()))

    def rule(self) -> str:
        return f"none of {len(self.words)} words"


@builtin
class SentenceCountFilter(AtLeast):
    """Keep documents with at least ``min_sentences`` sentences.

    A sentence ends with marks (``. ? !``), and quotes after them, before white space or the end of the text.
    """

    rule_text = "at least {0.least} sentences"

    def __init__(self, min_sentences: int = 3) -> None:
        self.least = min_sentences

    def score_batch(self, texts: Texts) -> Array:
        return _counts(texts, (len(_SENTENCE_END.findall(text)) for text in texts.strings()))
