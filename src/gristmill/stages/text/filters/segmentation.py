"""Words of languages that are written without spaces."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable
from functools import cache

from gristmill.kernels.texts import Texts


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
