"""The tables of characters, against Python's own."""

from __future__ import annotations

import sys
import unicodedata
import zlib

import pytest
from make_unicode_tables import classes_of, normal_tables, packed

from gristmill.kernels import folding
from gristmill.kernels.unicode import BLOCK, CODE_POINTS, UNICODE_VERSION, Class, class_of, tables


def all_classes() -> list[int]:
    blocks, classes = tables()
    found: list[int] = classes.reshape(-1, BLOCK)[blocks].ravel().tolist()
    return found


def test_white_space_is_what_python_splits_at():
    found = {c for c, bits in enumerate(all_classes()) if bits & Class.SPACE}
    assert found == {c for c in range(sys.maxunicode + 1) if chr(c).isspace()}
    assert all(f"a{chr(c)}b".split() == ["a", "b"] for c in found)


@pytest.mark.skipif(unicodedata.unidata_version != UNICODE_VERSION, reason="this Python has another Unicode")
def test_the_file_is_what_the_script_makes():
    assert all_classes() == [classes_of(chr(c)) for c in range(CODE_POINTS)]
    assert zlib.decompress(folding.PATH.read_bytes()) == zlib.decompress(packed(normal_tables()))


def test_letters_are_letters_as_long_as_unicode_does_not_change_its_mind():
    """Later versions assign more characters; hardly any that were assigned change."""
    letters = [c for c, bits in enumerate(all_classes()) if bits & Class.LETTER]
    assert len(letters) > 130_000
    assert sum(not chr(c).isalpha() for c in letters) < 10


@pytest.mark.parametrize(
    ("char", "wanted", "not_wanted"),
    [
        ("a", Class.LETTER | Class.ALPHANUMERIC | Class.PLAIN, Class.UPPER | Class.DIGIT | Class.SPACE),
        ("Ж", Class.LETTER | Class.UPPER, Class.PUNCTUATION),
        ("\u0301", Class.ALPHANUMERIC | Class.PLAIN, Class.LETTER),
        ("٣", Class.DIGIT | Class.ALPHANUMERIC, Class.LETTER),
        ("Ⅷ", Class.ALPHANUMERIC, Class.DIGIT),
        ("。", Class.PUNCTUATION | Class.PLAIN | Class.END_MARK, Class.ELLIPSIS),
        (";", Class.PUNCTUATION, Class.PLAIN | Class.END_MARK),
        ("\u037e", Class.PLAIN | Class.END_MARK, Class.LETTER),
        ("【", Class.BRACKET | Class.PUNCTUATION, Class.PLAIN),
        ("„", Class.PUNCTUATION, Class.BRACKET),
        ("»", Class.END_MARK, Class.BRACKET),
        ("…", Class.ELLIPSIS | Class.END_MARK, Class.PLAIN),
        ("•", Class.BULLET, Class.LETTER),
        ("\n", Class.PLAIN | Class.SPACE, Class.ALPHANUMERIC),
        ("\x1c", Class.SPACE, Class.PLAIN),
        ("\U0010ffff", Class(0), Class.LETTER),
    ],
)
def test_what_some_characters_are(char, wanted, not_wanted):
    assert class_of(char) & wanted == wanted
    assert not class_of(char) & not_wanted
