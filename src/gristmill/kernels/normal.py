"""Normal form C of texts: by one version of Unicode, on every version of Python."""

from __future__ import annotations

import zlib
from functools import cache
from pathlib import Path
from typing import NamedTuple

from gristmill.kernels.compile import Kernel
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
    """Return texts in normal form C, without the code points that are 0 in ``folds`` (see `folding.case_folds`)."""
    lengths = texts.ends - texts.starts
    out = np.empty(3 * int(lengths.sum()) + 4, np.uint8)
    edges = np.empty(len(texts) + 1, np.int64)
    tables = normal()
    work = np.empty((2, 2 * int(lengths.max(initial=0)) + 2), np.uint32)
    NORMALIZE_TEXTS(texts.arrays, folds, tables[3:7], tables[7:], (work[0], work[1]), out, edges)
    return Texts(out[: edges[-1]], edges[:-1], edges[1:])
