"""Count characters by a table of code points."""

from __future__ import annotations

import functools
import unicodedata
from collections.abc import Iterable
from typing import TYPE_CHECKING

from gristmill.kernels import compile as compiling
from gristmill.lazy import Array, np

if TYPE_CHECKING:
    from gristmill.kernels.texts import Texts


COUNT_TABLED = compiling.Kernel("char_kernels.count_tabled")
LIMIT = 0x110000
LAST_LETTER = 0x33479
"""The last code point of a letter in Unicode 17. Later ones are not searched."""


def table_of(codes: Iterable[int]) -> Array:
    """Return a table that is 1 at these code points and 0 at all others."""
    table = np.zeros(LIMIT, dtype=np.uint8)
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
