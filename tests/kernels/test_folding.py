"""Texts without case and white space are what plain Python makes of them."""

from __future__ import annotations

import unicodedata

from hypothesis import given
from hypothesis import strategies as st

from gristmill.kernels.folding import folded
from gristmill.kernels.texts import Texts
from gristmill.kernels.unicode import Class, class_of

CHARS = st.one_of(
    st.characters(exclude_categories=("Cs",)),
    st.sampled_from("aBÉßẞİıΣςσȺȾKΩ中カกد🙂𝒳𐐀 \t\n\u00a0\u2028\u3000\x00\x1f'—"),
)


def lowered(char: str) -> str:
    if char == "ς":
        return "σ"
    return char.lower()[0] if class_of(char) & Class.UPPER else char


def model(text: str) -> str:
    spaced = "".join(" " if class_of(char) & Class.SPACE else lowered(char) for char in text)
    return " ".join(part for part in spaced.split(" ") if part)


PLAIN = st.sampled_from("abYZ@[`{~!\x7f\x1f \t\n")


@given(st.lists(st.one_of(st.text(CHARS, max_size=30), st.text(PLAIN, max_size=60)), max_size=6))
def test_texts_are_folded_as_a_plain_loop_does(texts):
    assert folded(Texts.of(texts)).strings() == [model(text) for text in texts]


def test_every_letter_has_room_in_lower_case():
    letters = [chr(code) for code in range(0x110000) if unicodedata.category(chr(code)) in ("Lu", "Lt")]
    assert folded(Texts.of(letters)).strings() == [model(letter) for letter in letters]
    longest = [letter * 100 for letter in letters if len(lowered(letter).encode()) > len(letter.encode())]
    assert longest and folded(Texts.of(longest)).strings() == [model(text) for text in longest]


def test_only_some_of_the_texts_of_a_buffer_and_none():
    texts = Texts.of(["A b", "skipped", "C\n\nD "]).select([True, False, True])  # type: ignore[arg-type]
    assert folded(texts).strings() == ["a b", "c d"]
    assert folded(Texts.of([])).strings() == []


def test_a_byte_that_is_no_utf8_stays():
    import numpy as np

    data = np.frombuffer(b"A\xff \xc3B", np.uint8)
    made = folded(Texts(data, np.array([0]), np.array([5])))
    assert made.data[: made.ends[0]].tobytes() == b"a\xff \xc3b"
