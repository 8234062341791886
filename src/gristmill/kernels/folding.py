"""Normal form C of texts, and texts without differences in case, white space and invisible characters.

Both use one version of Unicode, on every version of Python.
"""

from __future__ import annotations

import zlib
from functools import cache
from pathlib import Path
from typing import NamedTuple

from gristmill.kernels import compile as compiling
from gristmill.kernels.compile import Kernel
from gristmill.kernels.overlap import in_lower_case, white_space
from gristmill.kernels.texts import Texts
from gristmill.kernels.unicode import BLOCK, CODE_POINTS
from gristmill.lazy import Array, np

PATH = Path(__file__).with_name("normal.bin")
NORMALIZE_TEXTS = Kernel("normal_kernels.normalize_texts")

IGNORABLE = (
    *((0x00AD, 0x00AD), (0x034F, 0x034F), (0x061C, 0x061C), (0x115F, 0x1160), (0x17B4, 0x17B5), (0x180B, 0x180F)),
    *((0x200B, 0x200F), (0x202A, 0x202E), (0x2060, 0x206F), (0x3164, 0x3164), (0xFE00, 0xFE0F), (0xFEFF, 0xFEFF)),
    *((0xFFA0, 0xFFA0), (0xFFF0, 0xFFF8), (0x1BCA0, 0x1BCA3), (0x1D173, 0x1D17A), (0xE0000, 0xE0FFF)),
)
"""Code points that are not shown: Unicode's property Default_Ignorable_Code_Point.

Among them are the soft hyphen, zero-width spaces and joiners, marks of direction, variation selectors and tags.
"""
HANGUL_MARKS = ((0x1161, 0x1175), (0x11A8, 0x11C2))
"""Vowels and final consonants of Hangul, which compose by rule and not by table."""


class Normal(NamedTuple):
    """The tables of normal form C. Hangul has a rule instead."""

    marks: Array
    """Code points with a combining class."""
    ranks: Array
    """Their combining classes."""
    changing: Array
    """Code points that may not be in normal form C after others."""
    blocks: Array
    entries: Array
    """``entries[blocks[c // BLOCK] * BLOCK + c % BLOCK]`` is 0, or the number of a decomposition plus one."""
    places: Array
    """Where decompositions begin in ``flat``, and where the last one ends."""
    flat: Array
    keys: Array
    """Pairs that compose, sorted: the first code point times 2^21, plus the second."""
    composites: Array


@cache
def normal() -> Normal:
    raw = zlib.decompress(PATH.read_bytes())
    found, at = [], 4 * 7
    for size in np.frombuffer(raw, "<u4", 7).tolist():
        found.append(np.frombuffer(raw, "<u4", size, at))
        at += 4 * size
    marks_ranks, changing, decomposed, lengths, flat, pairs, composites = found
    marks, ranks = marks_ranks.reshape(2, -1)
    numbers = np.zeros(CODE_POINTS, np.uint16)
    numbers[decomposed] = np.arange(1, len(decomposed) + 1)
    used = np.unique(decomposed // BLOCK)
    blocks = np.zeros(CODE_POINTS // BLOCK, np.uint8)
    blocks[used] = np.arange(1, len(used) + 1)
    entries = np.concatenate([np.zeros((1, BLOCK), np.uint16), numbers.reshape(-1, BLOCK)[used]])
    places = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths, dtype=np.int64)])
    first, second = pairs.reshape(2, -1).astype(np.uint64)
    keys = first << np.uint64(21) | second
    return Normal(marks, ranks, changing, blocks, entries.ravel(), places, flat, keys, composites)


def normalized(texts: Texts, folds: Array) -> Texts:
    """Return texts in normal form C, without the code points that are 0 in ``folds`` (see `case_folds`)."""
    lengths = texts.ends - texts.starts
    out = np.empty(3 * int(lengths.sum()) + 4, np.uint8)
    edges = np.empty(len(texts) + 1, np.int64)
    tables = normal()
    work = np.empty((2, 2 * int(lengths.max(initial=0)) + 2), np.uint32)
    NORMALIZE_TEXTS(texts.arrays, folds, tables[3:7], tables[7:], (work[0], work[1]), out, edges)
    return Texts(out[: edges[-1]], edges[:-1], edges[1:])


FOLD_TEXTS = Kernel("folding_kernels.fold_texts")
COMPOSES = 1 << 29


def preload() -> None:
    """Load kernels and tables in a process from which others are forked."""
    compiling.preload([FOLD_TEXTS, NORMALIZE_TEXTS])
    case_folds()


@cache
def case_folds() -> Array:
    """Return the replacement of each code point.

    0 if it is removed, the highest bit if it is white space; otherwise bit 30 and the code point in lower case. Bit 29
    is set for code points that may have to be composed with others. A mark has its combining class from bit 21 on.
    """
    table = np.arange(CODE_POINTS, dtype=np.uint32) | np.uint32(1 << 30)
    in_lower_case(table)
    tables = normal()
    table[tables.marks] |= tables.ranks << np.uint32(21)
    table[tables.changing] |= np.uint32(COMPOSES)
    white_space(table)
    for first, last in IGNORABLE:
        table[first : last + 1] = 0
    return table


def folded(texts: Texts) -> Texts:
    """Return texts as fuzzy comparison uses them.

    They are in normal form C and in lower case, with one space for each run of white space, none at the ends, and
    without characters that are not shown (`IGNORABLE`). Letters are put into lower case one by one, by the same
    version of Unicode on every version of Python. A final sigma becomes a sigma.
    """
    made, left = _folded(texts, is_normal=False)
    if not left:
        return made
    rest = np.flatnonzero(made.ends < 0)
    again, _ = _folded(
        normalized(Texts(texts.data, texts.starts[rest], texts.ends[rest]), case_folds()), is_normal=True
    )
    made.starts[rest] = again.starts + len(made.data)
    made.ends[rest] = again.ends + len(made.data)
    return Texts(np.concatenate([made.data, again.data]), made.starts, made.ends)


def _folded(texts: Texts, is_normal: bool) -> tuple[Texts, int]:
    """Return texts folded if they are in normal form C, and the number of all others. The end of those is -1."""
    out = np.empty(int((texts.ends - texts.starts).sum()) * 3 // 2 + 4, np.uint8)
    edges = np.empty(2 * len(texts), np.int64)
    left = FOLD_TEXTS(texts.arrays, case_folds(), int(is_normal), out, edges)
    starts, ends = np.ascontiguousarray(edges[::2]), np.ascontiguousarray(edges[1::2])
    return Texts(out[: ends.max(initial=0)], starts, ends), left
