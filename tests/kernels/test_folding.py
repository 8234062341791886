"""Texts as fuzzy comparison sees them are what plain Python makes of them."""

from __future__ import annotations

import random
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gristmill.kernels.folding import IGNORABLE, folded
from gristmill.kernels.texts import Texts
from gristmill.kernels.unicode import Class, class_of


def is_known(char: str) -> bool:
    """Whether the version of Unicode that the tables are of has it; that of this Python may be a later one."""
    return unicodedata.category(char)[0] not in "LMN" or bool(class_of(char) & Class.ALPHANUMERIC)


CHARS = st.one_of(
    st.characters(exclude_categories=("Cs", "Cn")).filter(is_known),
    st.sampled_from("aBÉßẞİıΣςσȺȾKΩ中カกد🙂𝒳𐐀 \t\n\u00a0\u2028\u3000\x00\x1f'—"),
    st.sampled_from("eAêo\u0301\u0323\u0302\u0307\u0345\u0308한한하\u00ad\u200b\u200d\u2060\ufeff\u034fক\u09be\u09c7"),
)
INVISIBLE = {chr(code) for first, last in IGNORABLE for code in range(first, last + 1)}


def lowered(char: str) -> str:
    if char == "ς":
        return "σ"
    return char.lower()[0] if class_of(char) & Class.UPPER else char


def model(text: str) -> str:
    text = unicodedata.normalize("NFC", "".join(char for char in text if char not in INVISIBLE))
    spaced = "".join(" " if class_of(char) & Class.SPACE else lowered(char) for char in text)
    return " ".join(part for part in spaced.split(" ") if part)


PLAIN = st.sampled_from("abYZ@[`{~!\x7f\x1f \t\n")


@given(st.lists(st.one_of(st.text(CHARS, max_size=30), st.text(PLAIN, max_size=60)), max_size=6))
def test_texts_are_folded_as_a_plain_loop_does(texts):
    assert folded(Texts.of(texts)).strings() == [model(text) for text in texts]


def test_every_letter_fits_in_lower_case():
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


SAMPLES = (
    "Crème brûlée à l'île, où naïveté règne",
    "Tiếng Việt có dấu: Nguyễn Thị Hương",
    "한국어 문장은 이렇게 생겼습니다",
    "বাংলা ভাষায় কোনো কথা",
    "हिन्दी में पढ़ाई और ज़िन्दगी",
    "தமிழ் மொழி கொண்டு",
    "Ångström and Ω and K, \ufb2c שּׁ",
    "ガギグゲゴ パピプペポ",
)


@pytest.mark.parametrize("text", SAMPLES)
@pytest.mark.parametrize("form", ["NFC", "NFD"])
def test_composed_and_decomposed_forms_with_invisible_characters_between_are_equal(text, form):
    rng = random.Random(text)
    changed = "".join(char + rng.choice(("", "", "\u00ad", "\u200b", "\u200d", "\u2060", "\ufeff", "\u200f", "\u2068"))
                      for char in unicodedata.normalize(form, text))  # fmt: skip
    plain, other = folded(Texts.of([text, changed])).strings()
    assert plain == other == model(text)


def test_every_character_that_decomposes_is_folded_as_its_parts():
    whole = [chr(code) for code in range(0x110000) if not 0xD800 <= code < 0xE000]
    parts = [unicodedata.normalize("NFD", char) for char in whole]
    changed = [(a, b) for a, b in zip(whole, parts, strict=True) if a != b and is_known(a)]
    assert len(changed) > 13_000
    assert folded(Texts.of([a for a, _ in changed])).strings() == folded(Texts.of([b for _, b in changed])).strings()
    assert folded(Texts.of([b for _, b in changed])).strings() == [model(a) for a, _ in changed]


def test_marks_in_any_order_and_in_any_number():
    seed = random.randrange(1 << 32)
    print("seed", seed)
    rng = random.Random(seed)
    marks = [
        chr(code) for code in range(0x0300, 0x0500) if unicodedata.combining(chr(code)) and chr(code) not in INVISIBLE
    ]
    texts = ["e" + "".join(rng.choices(marks, k=size)) + "n" for size in (0, 1, 2, 5, 23, 24, 25, 26, 300, 5000) * 5]
    assert folded(Texts.of(texts)).strings() == [model(text) for text in texts]


def test_text_that_is_in_normal_form_takes_the_same_bytes_beside_text_that_is_not():
    rest = ["plain", "naïve", "ক\u09be"]
    made = folded(Texts.of(["e\u0301", *rest, "\u00ad", "o\u0323\u0302"]))
    assert made.strings() == ["é", *rest, "", "ộ"]
