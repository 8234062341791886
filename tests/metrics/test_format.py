from __future__ import annotations

import doctest

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gristmill.metrics import format as fmt


def test_examples():
    assert doctest.testmod(fmt).failed == 0


@given(st.floats(0, 1e14))
def test_numbers_fit_their_columns(value):
    assert len(fmt.count(value)) <= 6
    assert len(fmt.rate(value)) <= 6
    assert len(fmt.size(int(value))) <= 6


@given(st.text(), st.integers(0, 30))
def test_shortened_text_fits(text, columns):
    assert fmt.width(fmt.shorten(text, columns)) <= columns
    assert fmt.width(fmt.cut(text, columns)) <= columns


def test_both_ends_of_a_long_name_stay():
    assert fmt.shorten("reader_of_many_files_0017", 11) == "reade…_0017"


def test_wide_characters_take_two_columns():
    assert fmt.width("数据") == 4
    assert fmt.width(fmt.shorten("数据处理阶段", 7)) <= 7


@pytest.mark.parametrize("text", ["a\x1b[2Jb", "a\nb", "a\rb", "a\x07b"])
def test_clean_text_has_no_control_characters(text):
    assert fmt.clean(text).isprintable()
