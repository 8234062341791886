"""Filters by what is repeated in a document."""

from __future__ import annotations

import pytest
import text_reference as reference
import text_samples as samples
from hypothesis import given, settings

from gristmill.kernels.texts import Texts
from gristmill.stages.text import filters


def share(part: int, whole: int, empty: float) -> float:
    return part / whole if whole else empty


def different(find, measure):
    def score(text: str) -> float:
        parts = find(text)
        return share(sum(map(measure, set(parts))), sum(map(measure, parts)), 1.0)

    return score


def top(n):
    return lambda text: share(reference.top(text, n), len(text), 0.0)


def duplicate(n):
    return lambda text: share(reference.duplicate(text, n), len(text), 0.0)


SCORES = [
    (filters.RepeatedLinesFilter(), different(reference.visible_lines, lambda part: 1)),
    (filters.RepeatedLinesByCharFilter(), different(reference.visible_lines, len)),
    (filters.RepeatedParagraphsFilter(), different(reference.visible_paragraphs, lambda part: 1)),
    (filters.RepeatedParagraphsByCharFilter(), different(reference.visible_paragraphs, len)),
    *((filters.RepeatingTopNGramsFilter(n), top(n)) for n in (1, 2, 3, 4, 13)),
    *((filters.RepeatingDuplicateNGramsFilter(n), duplicate(n)) for n in (1, 2, 5, 10, 13)),
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


def scores(one: filters.DocumentFilter, *strings: str) -> list[float]:
    return one.score_batch(Texts.of(strings)).tolist()


@pytest.mark.parametrize("one", [one for one, _ in SCORES], ids=lambda one: one.name)
def test_where_there_is_nothing_nothing_is_repeated(one):
    assert one.keep_batch(one.score_batch(Texts.of(["", " \n\n\t\u2028"]))).tolist() == [True, True]


def test_the_most_frequent_ngram_counts_with_all_its_occurrences():
    one = filters.RepeatingTopNGramsFilter(2)
    assert scores(one, "one two x one two") == [2 * len("one two") / 17]


def test_an_ngram_that_occurs_once_is_not_repeated():
    assert scores(filters.RepeatingTopNGramsFilter(2), "each word is new here", "one") == [0, 0]


def test_occurrences_that_overlap_count_once():
    assert scores(filters.RepeatingTopNGramsFilter(2), "a a a a") == [1.0]
    assert scores(filters.RepeatingDuplicateNGramsFilter(2), "a a a a") == [5 / 7]


def test_of_ngrams_that_are_as_frequent_the_first_counts():
    text = "a b | longer words | a b | longer words"
    assert scores(filters.RepeatingTopNGramsFilter(2), text) == [6 / len(text)]


def test_the_first_occurrence_is_no_duplicate():
    assert scores(filters.RepeatingDuplicateNGramsFilter(2), "one two x one two") == [7 / 17]


def test_the_white_space_between_words_does_not_matter():
    assert scores(filters.RepeatingDuplicateNGramsFilter(2), "one two\n\none\ntwo") == [7 / 16]


def test_paragraphs_end_at_blank_lines_whatever_is_in_them():
    assert scores(filters.RepeatedParagraphsFilter(), "a\nb\n \t\na\nb\n\n\n\nc\r\n\r\nc") == [2 / 4]


def test_verdicts():
    few, many = "one line\nanother\na third", "same\nsame\nsame\nother"
    for one in (filters.RepeatedLinesFilter(), filters.RepeatedLinesByCharFilter()):
        assert one.keep_batch(one.score_batch(Texts.of([few, many]))).tolist() == [True, False]
    for one in (filters.RepeatedParagraphsFilter(), filters.RepeatedParagraphsByCharFilter()):
        found = one.score_batch(Texts.of([text.replace("\n", "\n\n") for text in (few, many)]))
        assert one.keep_batch(found).tolist() == [True, False]


@pytest.mark.parametrize("kind", [filters.RepeatingTopNGramsFilter, filters.RepeatingDuplicateNGramsFilter])
@pytest.mark.parametrize("n", [0, -1, 2.0, True])
def test_a_wrong_n_is_an_error(kind, n):
    with pytest.raises(ValueError, match="whole number"):
        kind(n)


@pytest.mark.parametrize("one", [one for one, _ in SCORES], ids=lambda one: one.name)
def test_each_filter_says_its_rule(one):
    assert "%" in one.rule()
