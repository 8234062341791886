"""The classes of code points: of one version of Unicode, on every version of Python."""

from __future__ import annotations

import functools
import unicodedata
import zlib
from collections.abc import Iterable
from enum import IntFlag
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from gristmill.kernels import compile as compiling
from gristmill.lazy import Array, np

if TYPE_CHECKING:
    from gristmill.kernels.texts import Texts


UNICODE_VERSION = "14.0.0"
PATH = Path(__file__).with_name("unicode.bin")
CODE_POINTS = 0x110000
BLOCK = 256
COUNTED = 8
"""The number of class bits that `Chars` counts: the lowest ones."""


class Class(IntFlag):
    """The classes of a character. `Chars` counts the first eight, in this order."""

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
    """Characters of prose except spaces: ALPHANUMERIC, the newline, and ``? ! , .`` with their counterparts."""
    END_MARK = 256
    """Ends of sentences: full stops, question and exclamation marks, ellipses and quotation marks."""
    BULLET = 512
    ELLIPSIS = 1024


@cache
def tables() -> tuple[Array, Array]:
    """Return ``blocks, classes``: the class of ``c`` is ``classes[blocks[c // BLOCK] * BLOCK + c % BLOCK]``."""
    raw = zlib.decompress(PATH.read_bytes())
    count = CODE_POINTS // BLOCK
    classes = np.frombuffer(raw, dtype="<u2", offset=count).astype(np.uint16)
    return np.frombuffer(raw, dtype=np.uint8, count=count), classes


def class_of(char: str) -> Class:
    """Return the classes of one character."""
    blocks, classes = tables()
    code = ord(char)
    return Class(int(classes[int(blocks[code // BLOCK]) * BLOCK + code % BLOCK]))


@cache
def spread() -> Array:
    """Return for each combination of the counted classes a number with a one in the byte of each class."""
    bits = np.arange(1 << COUNTED, dtype=np.uint64)
    numbers = np.zeros_like(bits)
    for k in range(COUNTED):
        numbers |= ((bits >> np.uint64(k)) & np.uint64(1)) << np.uint64(8 * k)
    return numbers


COUNT_TABLED = compiling.Kernel("char_kernels.count_tabled")
LAST_LETTER = 0x33479
"""The last code point of a letter in Unicode 17. Later ones are not searched."""


def table_of(codes: Iterable[int]) -> Array:
    """Return a table that is 1 at these code points and 0 at all others."""
    table = np.zeros(CODE_POINTS, dtype=np.uint8)
    table[np.fromiter(codes, dtype=np.int64)] = 1
    return table


def count_in(texts: Texts, table: Array) -> tuple[Array, Array]:
    """Return for each text the number of its characters, and of those in the table.

    A byte that is not UTF-8 is a character that is in no table.
    """
    out = np.zeros((2, len(texts)), np.int64)
    COUNT_TABLED(texts.arrays, table, out)
    return out[0], out[1]


def preload() -> None:
    """Load the kernel of `count_in`, in a process from which others are forked."""
    compiling.preload([COUNT_TABLED])


@functools.cache
def alphabetic() -> Array:
    """Return the table of letters, letter-like numbers and vowel signs of all scripts."""
    return table_of(code for code in range(LAST_LETTER + 1) if _is_alphabetic(chr(code)))


@functools.cache
def space() -> Array:
    """Return the table of what Python calls space, in all scripts."""
    return table_of(code for code in range(0x3001) if chr(code).isspace())


@functools.cache
def newline() -> Array:
    return table_of([ord("\n")])


def _is_alphabetic(char: str) -> bool:
    kind = unicodedata.category(char)
    return kind[0] == "L" or kind == "Nl" or (kind in ("Mn", "Mc") and not unicodedata.combining(char))
