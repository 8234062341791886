"""Texts in which case, white space, invisible characters and the way accents are encoded do not matter."""

from __future__ import annotations

from functools import cache
from typing import Any, TypeAlias

from gristmill.kernels import compile as compiling
from gristmill.kernels.compile import Kernel
from gristmill.kernels.normal import IGNORABLE, NORMALIZE_TEXTS, normal, normalized
from gristmill.kernels.overlap import in_lower_case, white_space
from gristmill.kernels.texts import Texts
from gristmill.kernels.unicode import CODE_POINTS
from gristmill.lazy import np

Array: TypeAlias = "np.ndarray[Any, Any]"

FOLD_TEXTS = Kernel("folding_kernels.fold_texts")
COMPOSES = 1 << 29


def preload() -> None:
    """Load what is needed here, in a process from which others are forked."""
    compiling.preload([FOLD_TEXTS, NORMALIZE_TEXTS])
    case_folds()


@cache
def case_folds() -> Array:
    """What becomes of each code point.

    0 if it is removed, the highest bit if it is white space; otherwise bit 30 and the code point in lower case. Bit 29
    is set for code points that may have to be composed with others; a mark has its combining class from bit 21 on.
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
    """Return what fuzzy comparison sees of texts.

    They are in normal form C and in lower case, with one space in place of each run of white space, none at the ends,
    and without characters that are not shown (`normal.IGNORABLE`). Letters are put into lower case one by one, by one
    version of Unicode whatever the Python; a final sigma is a sigma.
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
    """Texts that are in normal form C, folded; the others end at -1. And how many others there are."""
    out = np.empty(int((texts.ends - texts.starts).sum()) * 3 // 2 + 4, np.uint8)
    edges = np.empty(2 * len(texts), np.int64)
    left = FOLD_TEXTS(texts.data, texts.starts, texts.ends, case_folds(), int(is_normal), out, edges)
    starts, ends = np.ascontiguousarray(edges[::2]), np.ascontiguousarray(edges[1::2])
    return Texts(out[: ends.max(initial=0)], starts, ends), left
