"""Filters by characters, words, lines and phrases: scores as plain Python has them, verdicts, reasons, rules."""

from __future__ import annotations

import re

import numpy as np
import pytest
import text_reference as reference
import text_samples as samples
from hypothesis import given, settings

from gristmill.kernels.texts import Texts
from gristmill.stages.registry import arguments_of
from gristmill.stages.text import filters
from gristmill.stages.text.filters.phrases import DUMMY_TEXT, POLICY_PHRASES
from gristmill.stages.text.filters.words import COMMON_ENGLISH_WORDS

URL = re.compile(r"https?://(?:[A-Za-z0-9$\-_@.&+/:=?#~!*(),]|%[0-9A-Fa-f]{2})+")


def share(part: int, whole: int, empty: float) -> float:
    return part / whole if whole else empty


def symbols_to_words(text: str) -> float:
    return share(max(reference.symbols(text).values()), len(text.split()), 1.0)


def boilerplate(text: str) -> float:
    if reference.boilerplate(text, (DUMMY_TEXT,))["hits"]:
        return 1.0
    found = reference.boilerplate(text, POLICY_PHRASES)
    return share(found["hits"], found["paragraphs"], 1.0)


def boilerplate_in_the_middle(text: str) -> float:
    found = reference.boilerplate(text, POLICY_PHRASES)
    if reference.boilerplate(text, (DUMMY_TEXT,))["hits"] or found["hits"] == found["paragraphs"]:
        return boilerplate(text)
    return share(found["hits"] - found["leading"] - found["trailing"], found["paragraphs"], 1.0)


def common(text: str) -> list[str]:
    return [word for word in text.split() if word in COMMON_ENGLISH_WORDS]


SCORES = [
    (filters.NonAlphaNumericFilter(), lambda t: share(len(t) - reference.chars(t)["plain"], len(t), 1.0)),
    (filters.NumbersFilter(), lambda t: share(reference.chars(t)["digits"], len(t), 1.0)),
    (filters.WhiteSpaceFilter(), lambda t: share(sum(map(str.isspace, t)), len(t), 1.0)),
    (filters.ParenthesesFilter(), lambda t: share(reference.chars(t)["brackets"], len(t), 1.0)),
    (filters.UrlsFilter(), lambda t: share(sum(map(len, URL.findall(t))), len(t), 1.0)),
    (filters.UrlsFilter(url_regex="(a)b|c"), lambda t: share(2 * t.count("ab") + t.count("c"), len(t), 1.0)),
    (filters.PornographicUrlsFilter(), lambda t: int(any("porn" in url.lower() for url in URL.findall(t)))),
    (
        filters.PornographicUrlsFilter(r"https://\S*"),
        lambda t: int("porn" in "".join(re.findall(r"https://\S*", t)).lower()),
    ),
    (filters.SymbolsToWordsFilter(), symbols_to_words),
    (filters.WordCountFilter(), lambda t: len(t.split())),
    (filters.MeanWordLengthFilter(), lambda t: share(sum(map(len, t.split())), len(t.split()), 0.0)),
    (filters.LongWordFilter(), lambda t: max(map(len, t.split()), default=0)),
    (filters.WordsWithoutAlphabetsFilter(), lambda t: share(reference.words(t)["with_letter"], len(t.split()), 0.0)),
    (filters.CommonEnglishWordsFilter(), lambda t: min(2, len(set(common(t))))),
    (filters.CommonEnglishWordsFilter(1, False, False), lambda t: len(common(t))),
    (filters.BulletsFilter(), lambda t: share(reference.lines(t)["bullets"], reference.lines(t)["count"], 1.0)),
    (filters.EllipsisFilter(), lambda t: share(reference.lines(t)["ellipses"], reference.lines(t)["count"], 1.0)),
    (
        filters.PunctuationFilter(),
        lambda t: share(
            reference.lines(t)["count"] - reference.lines(t)["end_marks"], reference.lines(t)["count"], 1.0
        ),
    ),
    (filters.BoilerPlateStringFilter(), boilerplate),
    (filters.BoilerPlateStringFilter(remove_if_at_top_or_bottom=False), boilerplate_in_the_middle),
    (filters.SubstringFilter("a b", "any"), lambda t: int("a b" in t)),
]


@pytest.mark.parametrize(("one", "wanted"), SCORES, ids=lambda value: getattr(value, "name", ""))
@settings(max_examples=15, deadline=None)
@given(strings=samples.batches)
def test_scores_are_exactly_those_of_plain_python(one, wanted, strings):
    assert one.score_batch(Texts.of(strings)).tolist() == [wanted(text) for text in strings]


@pytest.mark.parametrize(("one", "wanted"), SCORES, ids=lambda value: getattr(value, "name", ""))
def test_scores_of_real_text_are_exactly_those_of_plain_python(one, wanted):
    strings = samples.real()
    assert one.score_batch(Texts.of(strings)).tolist() == [wanted(text) for text in strings]


def kept(one: filters.DocumentFilter, *strings: str) -> list[bool]:
    return one.keep_batch(one.score_batch(Texts.of(strings))).tolist()


PROSE = "The cat sat on the mat, and that was all there was to be said of it."


@pytest.mark.parametrize(
    ("one", "good", "bad"),
    [
        (filters.NonAlphaNumericFilter(), "Привет, мир!", "$$ %% ~~ a"),
        (filters.NumbersFilter(), PROSE, "call ٠١٢٣٤٥٦٧٨٩ now"),
        (filters.WhiteSpaceFilter(), PROSE, "a\u3000\u2003b"),
        (filters.ParenthesesFilter(), PROSE, "（一）【二】"),
        (filters.UrlsFilter(), PROSE, "see http://example.org/a/b"),
        (filters.PornographicUrlsFilter(), "porn http://example.org", "http://PORN.example.org"),
        (filters.SymbolsToWordsFilter(), PROSE, "#one and two... and #three"),
        (filters.WordCountFilter(3, 20), PROSE, "too few"),
        (filters.WordCountFilter(1, 5), "just right", PROSE),
        (filters.MeanWordLengthFilter(), PROSE, "a b c d e"),
        (filters.LongWordFilter(5), "short words only", "a longer one"),
        (filters.WordsWithoutAlphabetsFilter(), "слово 你好 word नमस्ते 5", "1 2 3 four"),
        (filters.CommonEnglishWordsFilter(), PROSE, "the the the THE BE"),
        (filters.CommonEnglishWordsFilter(distinct=False), "the the", "the THE"),
        (filters.BulletsFilter(), "- one\ntwo", "- one\n• two\n * three"),
        (filters.EllipsisFilter(), PROSE, "so it goes far (...)\nand on…"),
        (filters.PunctuationFilter(), "一句话。\nno end", "one\ntwo\n\nthree"),
        (
            filters.BoilerPlateStringFilter(),
            f"{PROSE}\n\n{PROSE}\n\nSee our Terms of Use",
            f"{PROSE}\n\nWe USE cookies",
        ),
        (filters.BoilerPlateStringFilter(), PROSE, f"{PROSE}\n\n{PROSE}\n\n{PROSE}\n\nLorem ipsum dolor"),
        (filters.BoilerPlateStringFilter(False), f"privacy policy\n\n{PROSE}", "privacy policy\n\nterms of use"),
        (filters.SubstringFilter("cat", "any"), PROSE, "dog"),
        (filters.SubstringFilter("The", "prefix"), PROSE, "Not The"),
        (filters.SubstringFilter("it.", "suffix"), PROSE, "it. Not"),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_each_filter_tells_good_from_bad(one, good, bad):
    assert kept(one, good, bad) == [True, False]
    assert one.keep_document(one.score_document(good)) is True
    assert one.rule() and one.name


EMPTY_IS_KEPT = {"max_word_length", "pornographic_urls"}


@pytest.mark.parametrize("one", [one for one, _ in SCORES], ids=lambda one: one.name)
def test_an_empty_document_has_a_verdict(one):
    assert kept(one, "", "") == [one.name in EMPTY_IS_KEPT] * 2
    assert kept(one) == []


@pytest.mark.parametrize("one", [one for one, _ in SCORES], ids=lambda one: one.name)
def test_a_document_of_white_space_has_a_verdict(one):
    by_characters_that_are_not_there = {"numbers_ratio", "parentheses_ratio", "urls_ratio"}
    newlines_are_plain = {"alpha_numeric"}
    assert kept(one, "\n\n", " \u2028\t")[0] == (
        one.name in EMPTY_IS_KEPT | by_characters_that_are_not_there | newlines_are_plain
    )


def test_a_threshold_itself_is_kept():
    assert kept(filters.NumbersFilter(0.5), "a1", "a11") == [True, False]
    assert kept(filters.WordsWithoutAlphabetsFilter(0.5), "a 1", "a 1 1") == [True, False]
    assert kept(filters.WordCountFilter(2, 3), "a", "a b", "a b c", "a b c d") == [False, True, True, False]


def test_reasons_say_on_which_side_of_the_range_a_document_is():
    one = filters.WordCountFilter(2, 3)
    assert one.reasons(one.score_batch(Texts.of(["a", "a b c d"]))) == ["too few words", "too many words"]
    assert filters.MeanWordLengthFilter().reasons([2.0, 11.0]) == [
        "words too short on average",
        "words too long on average",
    ]


def test_arguments_are_remembered_for_configuration_files():
    assert arguments_of(filters.WordCountFilter(80, max_words=90)) == {"min_words": 80, "max_words": 90}


def test_a_position_that_does_not_exist_is_refused():
    with pytest.raises(ValueError, match="'prefix', 'suffix' or 'any', not 'middle'"):
        filters.SubstringFilter("a", "middle")


def test_a_language_that_needs_a_segmenter_says_which():
    with pytest.raises(ImportError, match="pip install jieba"):
        filters.WordCountFilter(lang="zh").score_batch(Texts.of(["你好"]))


def test_a_segmenter_finds_the_words_for_all_filters(monkeypatch):
    from gristmill.stages.text.filters import words

    monkeypatch.setattr(words, "segmenter", lambda lang: lambda text: list(text))
    texts = Texts.of(["你好你好你", "一"])
    assert filters.WordCountFilter(lang="zh").score_batch(texts).tolist() == [5, 1]
    rest = texts.select(np.array([True, False]))  # before n-grams are computed
    assert filters.RepeatingDuplicateNGramsFilter(2, lang="zh").score_batch(rest).tolist() == [3 / 5]
    assert filters.RepeatingTopNGramsFilter(2, lang="zh").score_batch(texts).tolist() == [4 / 5, 0]
