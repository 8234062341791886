"""Counting characters by a table of code points, with NumPy alone."""

from __future__ import annotations

import functools
import unicodedata
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from gristmill.kernels.texts import Texts

Array = np.ndarray[Any, Any]

PIECE = 1 << 20
"""Bytes that are looked at together: what a document costs in memory does not grow with it beyond this."""

LIMIT = 0x110000
LAST_LETTER = 0x33479
"""The last code point that Unicode 17 gives to a letter: none is looked for in the planes beyond."""


def table_of(codes: Iterable[int]) -> Array:
    """A table that is true at these code points."""
    table = np.zeros(LIMIT, dtype=bool)
    table[np.fromiter(codes, dtype=np.int64)] = True
    return table


def count_in(texts: Texts, table: Array) -> Array:
    """For each text, how many of its characters are in the table."""
    ascii_table = table[:128]

    def inside(piece: Array) -> int:
        if piece.max() < 128:
            return int(np.count_nonzero(ascii_table[piece]))
        wide = piece.tobytes().decode("utf-8").encode("utf-32-le")
        return int(np.count_nonzero(table[np.frombuffer(wide, dtype="<u4")]))

    return _summed(texts, inside)


def characters(texts: Texts) -> Array:
    """For each text, how many characters it has."""
    return _summed(texts, lambda piece: int(np.count_nonzero((piece & 0xC0) != 0x80)))


def occurrences(texts: Texts, byte: int) -> Array:
    """For each text, how often this byte, an ASCII sign, is in it."""
    return _summed(texts, lambda piece: int(np.count_nonzero(piece == byte)))


@functools.cache
def alphabetic() -> Array:
    """Letters and letter-like numbers of all scripts, and the vowel signs that stand on or beside them."""
    return table_of(code for code in range(LAST_LETTER + 1) if _is_alphabetic(chr(code)))


@functools.cache
def space() -> Array:
    """What Python calls space, in all scripts."""
    return table_of(code for code in range(0x3001) if chr(code).isspace())


def _is_alphabetic(char: str) -> bool:
    kind = unicodedata.category(char)
    return kind[0] == "L" or kind == "Nl" or (kind in ("Mn", "Mc") and not unicodedata.combining(char))


def _summed(texts: Texts, count: Callable[[Array], int]) -> Array:
    """The sum of ``count`` over the pieces of each text; pieces begin where characters begin."""
    counts = np.zeros(len(texts), dtype=np.int64)
    data = texts.data
    for i, (start, end) in enumerate(zip(texts.starts.tolist(), texts.ends.tolist(), strict=True)):
        while start < end:
            stop = min(start + PIECE, end)
            while stop < end and data[stop] & 0xC0 == 0x80:
                stop -= 1
            counts[i] += count(data[start:stop])
            start = stop
    return counts
