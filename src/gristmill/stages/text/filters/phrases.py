"""Filters by contents of a document: addresses, phrases, words of a list, sentences."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Literal

from gristmill.kernels.features import contains
from gristmill.kernels.texts import Texts
from gristmill.lazy import Array, np
from gristmill.stages.registry import builtin
from gristmill.stages.text.filters.document_filter import AtLeast, AtMost, DocumentFilter, percent, ratio

DUMMY_TEXT = "lorem ipsum"
POLICY_PHRASES = (
    "terms of use",
    "privacy policy",
    "privacy overview",
    "cookie policy",
    "cookies policy",
    "uses cookies",
    "use cookies",
    "use of cookies",
    # from the long notices of cookie banners that do not have one of the above in each paragraph
    "necessary cookies are absolutely essential",
    "cookies that may not be particularly necessary",
    "without changing your cookie settings",
)


def _addresses(url_regex: re.Pattern[str] | str, text: str) -> list[str]:
    return [found.group() for found in re.finditer(url_regex, text)]


@builtin
class UrlsFilter(AtMost):
    """Drops documents in which too many characters belong to addresses.

    An address is ``http://`` or ``https://`` and the ASCII characters of addresses after it, or what ``url_regex``
    matches, which is slower. An empty document scores 1 and is dropped.
    """

    name = "urls_ratio"
    needs = ("chars", "urls")
    rule_text = "at most {0.percent} of the characters belong to addresses"
    thresholds = {"max_url_to_text_ratio": "most"}

    def __init__(self, max_url_to_text_ratio: float = 0.2, url_regex: re.Pattern[str] | str | None = None) -> None:
        self.most = max_url_to_text_ratio
        self.url_regex = re.compile(url_regex) if url_regex is not None else None

    def score_batch(self, texts: Texts) -> Array:
        if self.url_regex is None:
            chars = texts.urls.chars
        else:
            found = (sum(map(len, _addresses(self.url_regex, text))) for text in texts.strings())
            chars = np.fromiter(found, np.int64, len(texts))
        return ratio(chars, texts.chars.count, empty=1.0)


@builtin
class PornographicUrlsFilter(AtMost):
    """Drops documents with an address that contains "porn", in any case. They score 1, all others 0.

    NeMo Curator searches for it in lower case. For ``url_regex`` see `UrlsFilter`.
    """

    needs = ("urls",)
    most = 0
    rule_text = 'no address has "porn" in it'

    def __init__(self, url_regex: re.Pattern[str] | str | None = None) -> None:
        self.url_regex = re.compile(url_regex) if url_regex is not None else None

    def score_batch(self, texts: Texts) -> Array:
        if self.url_regex is None:
            return (texts.urls.porn > 0).astype(np.int64)
        found = (any("porn" in url.lower() for url in _addresses(self.url_regex, text)) for text in texts.strings())
        return np.fromiter(found, np.int64, len(texts))


@builtin
class BoilerPlateStringFilter(AtMost):
    """Drops documents in which too many paragraphs have a phrase such as "terms of use" or "uses cookies" (after C4).

    A document with "lorem ipsum" scores 1. Case does not matter. Without ``remove_if_at_top_or_bottom`` such paragraphs
    do not count at the top and at the bottom of the document, unless it has no others. In NeMo Curator the argument has
    no effect. A document without paragraphs scores 1 and is dropped.
    """

    name = "boilerplate_string_ratio"
    needs = ("boilerplate",)
    thresholds = {"max_boilerplate_string_ratio": "most"}

    def __init__(self, remove_if_at_top_or_bottom: bool = True, max_boilerplate_string_ratio: float = 0.4) -> None:
        self.remove_if_at_top_or_bottom = remove_if_at_top_or_bottom
        self.most = max_boilerplate_string_ratio

    def score_batch(self, texts: Texts) -> Array:
        dummy = texts.boilerplate((DUMMY_TEXT,)).hits > 0
        found = texts.boilerplate(POLICY_PHRASES)
        hits = found.hits
        if not self.remove_if_at_top_or_bottom:
            hits = np.where(hits < found.paragraphs, hits - found.leading - found.trailing, hits)
        return np.where(dummy, 1.0, ratio(hits, found.paragraphs, empty=1.0))

    def rule(self) -> str:
        where = "" if self.remove_if_at_top_or_bottom else " between others"
        return f'at most {percent(self.most)} of the paragraphs are boilerplate{where}, and none has "{DUMMY_TEXT}"'


@builtin
class SubstringFilter(DocumentFilter):
    """Keeps documents that contain a string at their beginning, at their end, or anywhere. They score 1, others 0.

    As in Python, the empty string is everywhere.
    """

    needs = ("contains",)

    def __init__(self, substring: str, position: Literal["prefix", "suffix", "any"]) -> None:
        if position not in ("prefix", "suffix", "any"):
            raise ValueError(f"position of SubstringFilter must be 'prefix', 'suffix' or 'any', not {position!r}.")
        self.substring = substring
        self.position = position

    def score_batch(self, texts: Texts) -> Array:
        return contains(texts, self.substring, self.position).astype(np.int64)

    def keep_batch(self, scores: Array) -> Array:
        kept: Array = scores == 1
        return kept

    def rule(self) -> str:
        where = {"prefix": "begins with", "suffix": "ends with", "any": "contains"}[self.position]
        return f"{where} {self.substring!r}"


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
    thresholds = {"min_sentences": "least"}

    def __init__(self, min_sentences: int = 3) -> None:
        self.least = min_sentences

    def score_batch(self, texts: Texts) -> Array:
        return _counts(texts, (len(_SENTENCE_END.findall(text)) for text in texts.strings()))
