"""Every kernel against plain Python, on generated text in many scripts and on real text."""

from __future__ import annotations

import re

import numpy as np
import pytest
import text_reference as reference
import text_samples as samples
from hypothesis import given, settings

from gristmill.kernels.features import contains
from gristmill.kernels.texts import Texts

PHRASES = ("lorem ipsum", "terms of use", "privacy policy")
URL = re.compile(r"https?://(?:[A-Za-z0-9$\-_@.&+/:=?#~!*(),]|%[0-9A-Fa-f]{2})+")


def agree(strings: list[str], group: str) -> None:
    found = getattr(Texts.of(strings), group)
    for k, text in enumerate(strings):
        wanted = getattr(reference, group)(text)
        assert {name: int(getattr(found, name)[k]) for name in wanted} == wanted, text


@pytest.mark.parametrize("group", ["chars", "symbols", "words", "lines", "paragraphs"])
@settings(max_examples=60, deadline=None)
@given(strings=samples.batches)
def test_counts_are_those_of_plain_python(group, strings):
    agree(strings, group)


@settings(max_examples=120, deadline=None)
@given(strings=samples.batches)
def test_the_length_is_in_characters(strings):
    assert Texts.of(strings).length.count.tolist() == [len(text) for text in strings]


@pytest.mark.parametrize("data", [b"\xff\xfe" * 30 + b"a" * 40 + b"\xe2\x82", b"a" * 31 + b"\xc3", b"\x80" * 3])
def test_the_length_of_what_is_no_utf8_is_that_of_chars(data):
    def texts() -> Texts:
        return Texts(np.frombuffer(data, np.uint8), np.array([0]), np.array([len(data)]))

    assert texts().length.count[0] == texts().chars.count[0]


@pytest.mark.parametrize("group", ["chars", "symbols", "words", "lines", "paragraphs"])
def test_counts_are_those_of_plain_python_on_real_text(group):
    agree(samples.real(), group)


def ngrams_agree(strings: list[str], largest: int) -> None:
    ngrams_from(1, strings, largest)
    ngrams_from(2, strings, largest)


def ngrams_from(smallest: int, strings: list[str], largest: int) -> None:
    texts = Texts.of(strings)
    texts.ngrams(smallest)
    found = texts.ngrams(largest)
    assert found.smallest == smallest
    for k, text in enumerate(strings):
        for n in range(smallest, largest + 1):
            assert found.top[k, n - 1] == reference.top(text, n), (n, text)
            assert found.duplicate[k, n - 1] == reference.duplicate(text, n), (n, text)


@settings(max_examples=120, deadline=None)
@given(strings=samples.batches)
def test_repeated_ngrams_are_those_of_plain_python(strings):
    ngrams_agree(strings, 12)


def test_repeated_ngrams_are_those_of_plain_python_on_real_text():
    ngrams_agree(samples.real(), 10)


def test_ngrams_longer_than_usual_are_computed_when_they_are_asked_for():
    texts = Texts.of(["a b c d e f g h i j k l m n " * 3])
    assert texts.ngrams(2).largest < 14 <= texts.ngrams(14).largest
    assert texts.ngrams(14).duplicate[0, 13] == reference.duplicate(texts[0], 14) > 0


def test_single_words_are_counted_when_they_are_asked_for():
    texts = Texts.of(["a b a a"])
    assert texts.ngrams(12).top[0, 0] == 0
    assert texts.ngrams(1).top[0, 0] == reference.top(texts[0], 1) == 3
    assert texts.ngrams(1).largest == 12


@settings(max_examples=60, deadline=None)
@given(strings=samples.batches)
def test_listed_words_are_found(strings):
    listed = ("the", "of", "你好", "été", "eightchr", "ninechars", "of")
    found = Texts.of(strings).listed_words(listed)
    for k, text in enumerate(strings):
        among = [word for word in text.split() if word in listed]
        assert (found.count[k], found.distinct[k]) == (len(among), len(set(among)))


@pytest.mark.parametrize("letter", ["a", "é", "漢"])
def test_a_word_has_one_hash_wherever_it_stands_and_another_than_all_others(letter):
    words = [(letter + "bcdefgh" * 6)[:length] for length in range(1, 40)] + [letter * 16, letter * 17]
    rest = "and so on, until there are more bytes than are looked at at once"
    alone, behind, before = (
        Texts.of(made).words for made in (words, [f"x {w}" for w in words], [f"{w} {rest}" for w in words])
    )
    assert len(set(alone.hashes.tolist())) == len(words)
    assert alone.hashes.tolist() == behind.hashes[behind.first + 1].tolist() == before.hashes[before.first].tolist()


@settings(max_examples=30, deadline=None)
@given(strings=samples.batches)
@pytest.mark.parametrize("count", [64, 65])
def test_words_of_long_lists_are_found(strings, count):
    listed = tuple(dict.fromkeys([*" ".join(strings).split()[: count // 2], *map(str, range(count))]))[:count]
    found = Texts.of(strings).listed_words(listed)
    for k, text in enumerate(strings):
        among = [word for word in text.split() if word in listed]
        assert (found.count[k], found.distinct[k]) == (len(among), len(set(among)))


def test_a_listed_word_counts_again_in_each_document():
    found = Texts.of(["the the of", "the", "", "of the"]).listed_words(("the", "of"))
    assert (found.count.tolist(), found.distinct.tolist()) == ([3, 1, 0, 2], [2, 1, 0, 2])


def test_a_list_of_words_takes_single_words_only():
    with pytest.raises(ValueError, match="single words"):
        Texts.of(["a"]).listed_words(("two words",))


@settings(max_examples=60, deadline=None)
@given(strings=samples.batches)
def test_boilerplate_is_found_by_paragraph(strings):
    found = Texts.of(strings).boilerplate(PHRASES)
    for k, text in enumerate(strings):
        wanted = reference.boilerplate(text, PHRASES)
        assert {name: int(getattr(found, name)[k]) for name in wanted} == wanted


@settings(max_examples=60, deadline=None)
@given(strings=samples.batches)
def test_addresses_are_found(strings):
    found = Texts.of(strings).urls
    for k, text in enumerate(strings):
        urls = URL.findall(text)
        assert found.chars[k] == sum(map(len, urls))
        assert found.porn[k] == sum("porn" in url.lower() for url in urls)


@settings(max_examples=100, deadline=None)
@given(strings=samples.batches, wanted=samples.pieces)
def test_strings_are_found_where_they_are_sought(strings, wanted):
    texts = Texts.of(strings)
    assert contains(texts, wanted, "any").tolist() == [wanted in text for text in strings]
    assert contains(texts, wanted, "prefix").tolist() == [text.startswith(wanted) for text in strings]
    assert contains(texts, wanted, "suffix").tolist() == [text.endswith(wanted) for text in strings]


@settings(max_examples=60, deadline=None)
@given(strings=samples.batches)
def test_what_was_computed_goes_along_with_the_documents_that_stay(strings):
    mask = np.array([k % 2 == 0 for k in range(len(strings))], dtype=bool)
    before = Texts.of(strings)
    groups = ("chars", "symbols", "words", "lines", "paragraphs", "urls")
    for group in groups:
        getattr(before, group)
    before.boilerplate(PHRASES), before.ngrams(10)
    after, fresh = before.select(mask), Texts.of([text for text, kept in zip(strings, mask, strict=True) if kept])
    assert set(after._computed) == {*groups, ("boilerplate", PHRASES), "ngrams"}
    for group in groups:
        for name, value in vars(getattr(fresh, group)).items():
            if name not in ("first", "last", "hashes", "lengths"):
                assert getattr(getattr(after, group), name).tolist() == value.tolist()
    assert after.ngrams(10).top.tolist() == fresh.ngrams(10).top.tolist()
    del after._computed["ngrams"]  # again, from the words that were taken along
    assert after.ngrams(10).duplicate.tolist() == fresh.ngrams(10).duplicate.tolist()


@settings(max_examples=60, deadline=None)
@given(strings=samples.batches)
def test_bytes_around_a_text_do_not_matter(strings):
    """A text's values are those it has alone, whatever is before and after it in the buffer."""
    together = Texts.of(strings)
    for k, text in enumerate(strings):
        alone = Texts.of([text])
        assert together.words.hashes[together.words.first[k] : together.words.last[k]].tolist() == (
            alone.words.hashes.tolist()
        )
        assert together.lines.end_marks[k] == alone.lines.end_marks[0]


def test_what_stands_at_the_very_end_is_found():
    texts = Texts.of(
        ["see http://x", "https://x", "http://", "our Terms of Use", "a\n\nLOREM IPSUM\n", "privacy polic"]
    )
    assert texts.urls.chars.tolist() == [8, 9, 0, 0, 0, 0]
    assert texts.boilerplate(PHRASES).hits.tolist() == [0, 0, 0, 1, 1, 0]


def test_what_a_text_ends_with_is_not_sought_in_its_neighbour():
    strings = [
        "[",
        "...]",
        "(",
        "…)",
        "#.",
        "..",
        "http:",
        "//a.b",
        "https",
        "://a.b",
        "terms",
        " of use",
        "a b",
        "a b",
    ]
    texts = Texts.of(strings)
    assert texts.lines.ellipses.tolist() == [0] * len(strings)
    assert texts.symbols.ellipses.tolist() == [0, 1, 0, 1] + [0] * 10
    assert texts.urls.chars.tolist() == [0] * len(strings)
    assert texts.boilerplate(PHRASES).hits.tolist() == [0] * len(strings)
    assert texts.ngrams(2).duplicate.sum() == 0


def test_bytes_that_are_no_utf8_crash_nothing_and_stay_inside():
    random = np.random.default_rng(7)
    bad = [b"\xf0\x9f", b"\x80\x80\x80\x80\x80", b"a \xe2\x80", b"\xff\xfe.", b"\xf5\xbf\xbf\xbf", b"\xc2", b"\xe3\x80"]
    bad += [random.integers(0, 256, size, dtype=np.uint8).tobytes() for size in range(1, 200, 3)]
    for one in bad:
        values = []
        for behind in (b"\xa0\xa0\xa0\xa0", b"    "):  # the first would continue a character that is cut off
            data = np.frombuffer(one + behind, np.uint8)
            texts = Texts(data, np.array([0]), np.array([len(one)]))
            assert 0 < texts.chars.count[0] <= len(one)
            assert texts.words.chars[0] + texts.chars.spaces[0] == texts.chars.count[0]
            texts.paragraphs, texts.symbols, texts.urls, texts.ngrams(10), texts.boilerplate(PHRASES)
            groups = (texts.chars, texts.words, texts.lines, texts.paragraphs, texts.symbols)
            values.append([array.tolist() for group in groups for array in vars(group).values()])
        assert values[0] == values[1], one
