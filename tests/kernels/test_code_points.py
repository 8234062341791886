"""Counting characters by code point, against Python's own counting."""

import unicodedata

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gristmill.kernels import code_points
from gristmill.kernels.code_points import alphabetic, characters, count_in, occurrences, space, table_of
from gristmill.kernels.texts import Texts

TEXT = st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=60)
MANY = st.lists(st.one_of(TEXT, st.text("ab é\n漢😀", max_size=40)), max_size=8)


@settings(deadline=None)  # the first text waits for pyarrow
@given(MANY)
def test_counts_are_those_of_python(strings):
    texts = Texts.of(strings)
    table = table_of(map(ord, "a é漢😀\n"))
    assert characters(texts).tolist() == [len(text) for text in strings]
    assert occurrences(texts, ord("\n")).tolist() == [text.count("\n") for text in strings]
    assert count_in(texts, table).tolist() == [sum(char in "a é漢😀\n" for char in text) for text in strings]
    assert count_in(texts, space()).tolist() == [sum(map(str.isspace, text)) for text in strings]


@settings(deadline=None)
@given(st.text("ab é漢😀", min_size=1, max_size=80))
def test_long_texts_are_counted_in_pieces_that_cut_no_character(text):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(code_points, "PIECE", 5)
        texts = Texts.of(["x", text])
        assert characters(texts).tolist() == [1, len(text)]
        assert count_in(texts, table_of([ord("漢"), ord("a")])).tolist() == [0, text.count("漢") + text.count("a")]


def test_what_was_selected_is_counted_and_nothing_between():
    texts = Texts.of(["aé", "aaaa", "", "漢a"]).select(np.array([True, False, True, True]))
    assert characters(texts).tolist() == [2, 0, 2]
    assert count_in(texts, table_of([ord("a")])).tolist() == [1, 0, 1]


def test_letters_of_all_scripts_are_alphabetic_and_signs_are_not():
    table = alphabetic()
    for char in "aZéßЖ漢あ한अाⅣ":
        assert table[ord(char)], unicodedata.name(char)
    for char in "09٣ \n_-+§€😀\u0301":
        assert not table[ord(char)], unicodedata.name(char, repr(char))
