"""Texts without differences in case, white space, invisible characters and the encoding of accents."""

from __future__ import annotations

from functools import cache

from gristmill.kernels import compile as compiling
from gristmill.kernels.compile import Kernel
from gristmill.kernels.normal import IGNORABLE, NORMALIZE_TEXTS, normal, normalized
from gristmill.kernels.overlap import in_lower_case, white_space
from gristmill.kernels.texts import Texts
from gristmill.kernels.unicode import CODE_POINTS
from gristmill.lazy import Array, np

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
    without characters that are not shown (`normal.IGNORABLE`). Letters are put into lower case one by one, by the same
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
