"""Counting characters by a table of code points."""

from __future__ import annotations

import functools
import unicodedata
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, TypeAlias

from gristmill.kernels import compile as compiling
from gristmill.lazy import np

if TYPE_CHECKING:
    from gristmill.kernels.texts import Texts

Array: TypeAlias = "np.ndarray[Any, Any]"

COUNT_TABLED = compiling.Kernel("table_kernels.count_tabled")
LIMIT = 0x110000
LAST_LETTER = 0x33479
"""The last code point that Unicode 17 gives to a letter: none is looked for in the planes beyond."""


def table_of(codes: Iterable[int]) -> Array:
    """A table that is 1 at these code points and 0 at all others."""
    table = np.zeros(LIMIT, dtype=np.uint8)
    table[np.fromiter(codes, dtype=np.int64)] = 1
    return table


def count_in(texts: Texts, table: Array) -> tuple[Array, Array]:
    """For each text how many characters it has, and how many of them are in the table.

    A byte that is no UTF-8 is a character, and in no table.
    """
    out = np.zeros((2, len(texts)), np.int64)
    COUNT_TABLED(texts.data, texts.starts, texts.ends, table, out)
    return out[0], out[1]


def preload() -> None:
    """Load what `count_in` needs, in a process from which others are forked."""
    compiling.preload([COUNT_TABLED])


@functools.cache
def alphabetic() -> Array:
    """Letters and letter-like numbers of all scripts, and the vowel signs that stand on or beside them."""
    return table_of(code for code in range(LAST_LETTER + 1) if _is_alphabetic(chr(code)))


@functools.cache
def space() -> Array:
    """What Python calls space, in all scripts."""
    return table_of(code for code in range(0x3001) if chr(code).isspace())


@functools.cache
def newline() -> Array:
    return table_of([ord("\n")])


def _is_alphabetic(char: str) -> bool:
    kind = unicodedata.category(char)
    return kind[0] == "L" or kind == "Nl" or (kind in ("Mn", "Mc") and not unicodedata.combining(char))
