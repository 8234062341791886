"""The classes of code points, of one version of Unicode whatever the Python."""

from __future__ import annotations

import zlib
from enum import IntFlag
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from gristmill.lazy import np

UNICODE_VERSION = "14.0.0"
PATH = Path(__file__).with_name("unicode.bin")
CODE_POINTS = 0x110000
BLOCK = 256
COUNTED = 8
"""How many of the class bits are counted by `Chars`: the lowest."""


class Class(IntFlag):
    """What a character is. The first eight are counted by `Chars`, in this order."""

    LETTER = 1
    """Categories L*, as `str.isalpha`."""
    DIGIT = 2
    """Decimal digits of all scripts: category Nd."""
    ALPHANUMERIC = 4
    """Letters, marks that belong to letters (L*, M*), and numbers (N*)."""
    SPACE = 8
    """As `str.isspace` and `str.split`."""
    PUNCTUATION = 16
    """Categories P*."""
    UPPER = 32
    """Upper and title case: Lu, Lt."""
    BRACKET = 64
    """Brackets of all kinds: Ps and Pe, without the low quotation marks among them."""
    PLAIN = 128
    """What prose is made of but spaces: ALPHANUMERIC, the newline, and ``? ! , .`` with their counterparts."""
    END_MARK = 256
    """What a sentence ends with: full stops, question and exclamation marks, ellipses and quotation marks."""
    BULLET = 512
    ELLIPSIS = 1024


class Tables(NamedTuple):
    """The class of ``c`` is ``classes[blocks[c // BLOCK] * BLOCK + c % BLOCK]``."""

    blocks: np.ndarray[Any, Any]
    classes: np.ndarray[Any, Any]


@cache
def tables() -> Tables:
    raw = zlib.decompress(PATH.read_bytes())
    count = CODE_POINTS // BLOCK
    classes = np.frombuffer(raw, dtype="<u2", offset=count).astype(np.uint16)
    return Tables(np.frombuffer(raw, dtype=np.uint8, count=count), classes)


def class_of(char: str) -> Class:
    """The classes of one character, by the tables."""
    blocks, classes = tables()
    code = ord(char)
    return Class(int(classes[int(blocks[code // BLOCK]) * BLOCK + code % BLOCK]))


@cache
def spread() -> np.ndarray[Any, Any]:
    """For each combination of the counted classes a number that has a one in the byte of each of them."""
    bits = np.arange(1 << COUNTED, dtype=np.uint64)
    numbers = np.zeros_like(bits)
    for k in range(COUNTED):
        numbers |= ((bits >> np.uint64(k)) & np.uint64(1)) << np.uint64(8 * k)
    return numbers
