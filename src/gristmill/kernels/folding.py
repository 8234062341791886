"""Texts in which case and white space do not matter."""

from __future__ import annotations

from functools import cache
from typing import Any

from gristmill.kernels import compile as compiling
from gristmill.kernels.compile import Kernel
from gristmill.kernels.overlap import in_lower_case, white_space
from gristmill.kernels.texts import Texts
from gristmill.kernels.unicode import CODE_POINTS
from gristmill.lazy import np

FOLD_TEXTS = Kernel("folding_kernels.fold_texts")


def preload() -> None:
    """Load what is needed here, in a process from which others are forked."""
    compiling.preload([FOLD_TEXTS])
    case_folds()


@cache
def case_folds() -> np.ndarray[Any, Any]:
    """As `overlap.folds`: what becomes of each code point. Only case changes, and nothing is left out."""
    table = np.arange(CODE_POINTS, dtype=np.uint32) | np.uint32(1 << 30)
    in_lower_case(table)
    white_space(table)
    return table


def folded(texts: Texts) -> Texts:
    """The texts in lower case, with one space in place of each run of white space and none at the ends.

    Letters are in lower case one by one, by one version of Unicode whatever the Python; a final sigma is a sigma.
    """
    out = np.empty(int((texts.ends - texts.starts).sum()) * 3 // 2 + 4, np.uint8)
    edges = np.empty(len(texts) + 1, np.int64)
    FOLD_TEXTS(texts.data, texts.starts, texts.ends, case_folds(), out, edges)
    return Texts(out[: edges[-1]], edges[:-1], edges[1:])
