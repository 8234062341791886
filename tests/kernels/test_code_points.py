"""Counting characters by code point, against Python's own counting."""

import unicodedata

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from gristmill.kernels.texts import Texts
from gristmill.kernels.unicode import alphabetic, count_in, newline, space, table_of

TEXT = st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=60)
ALL_BUT_ONE = 1 - table_of([0xFFFF])
MANY = st.lists(st.one_of(TEXT, st.text("ab é\n漢😀", max_size=40)), max_size=8)


@settings(deadline=None)  # the first texts wait for the kernel
@given(MANY)
def test_counts_are_those_of_python(strings):
    texts = Texts.of(strings)
    chars, inside = count_in(texts, table_of(map(ord, "a é漢😀\n\U0010ffff")))
    assert chars.tolist() == [len(text) for text in strings]
    assert inside.tolist() == [sum(char in "a é漢😀\n\U0010ffff" for char in text) for text in strings]
    assert count_in(texts, newline())[1].tolist() == [text.count("\n") for text in strings]
    assert count_in(texts, space())[1].tolist() == [sum(map(str.isspace, text)) for text in strings]


def test_every_code_point_is_looked_up_at_its_own_place():
    codes = [code for code in range(0, 0x110000, 97) if not 0xD800 <= code < 0xE000] + [
        0x7F,
        0x80,
        0x7FF,
        0x800,
        0xFFFF,
    ]
    text = "".join(map(chr, codes))
    assert count_in(Texts.of([text]), table_of(codes))[1].tolist() == [len(codes)]
    assert count_in(Texts.of([text]), 1 - table_of(codes))[1].tolist() == [0]


def test_what_was_selected_is_counted_and_nothing_between():
    texts = Texts.of(["aé", "aaaa", "", "漢a"]).select(np.array([True, False, True, True]))
    chars, inside = count_in(texts, table_of([ord("a")]))
    assert (chars.tolist(), inside.tolist()) == ([2, 0, 2], [1, 0, 1])


def test_letters_of_all_scripts_are_alphabetic_and_signs_are_not():
    table = alphabetic()
    for char in "aZéßЖ漢あ한अाⅣ":
        assert table[ord(char)], unicodedata.name(char)
    for char in "09٣ \n_-+§€😀\u0301":
        assert not table[ord(char)], unicodedata.name(char, repr(char))


@given(st.binary(max_size=40))
@settings(deadline=None)
def test_bytes_that_are_no_text_are_characters_and_in_no_table(data):
    given = np.frombuffer(data + b"\xf4\x90\x80\x80\xc3a\xe6", dtype=np.uint8)  # the last is cut off by the end
    texts = Texts(given, np.array([0]), np.array([len(given) - 1]))
    chars, inside = count_in(texts, ALL_BUT_ONE)
    assert inside[0] <= chars[0] <= len(given) - 1
    assert count_in(Texts(given[-7:], np.array([0]), np.array([6])), table_of(range(128)))[1].tolist() == [1]
