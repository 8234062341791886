"""Groups of equal keys and of numbers that hang together, for any count of them."""

from __future__ import annotations

from typing import Any, TypeAlias

from gristmill.kernels.compile import Kernel
from gristmill.kernels.features import SALT
from gristmill.lazy import np

Array: TypeAlias = "np.ndarray[Any, Any]"
PART = 8192
"""Keys that are looked up in one table: it and they stay in the cache."""
MOST_PARTS = 4096
MOST_KEYS = (1 << 31) - 1

FIND_FIRST = Kernel("group_kernels.find_first")
UNITE = {"int64": Kernel("group_kernels.unite_ints"), "uint32": Kernel("group_kernels.unite_uint32")}
LABEL = {"int64": Kernel("group_kernels.label_ints"), "uint32": Kernel("group_kernels.label_uint32")}


def first_equal(keys: Array) -> Array:
    """For each of the keys, ``uint64`` or rows of two, the smallest position of one that equals it.

    Takes time in proportion to their number, however many are equal, and 40 bytes of memory for each, the result
    included.
    """
    width = 1 if keys.ndim == 1 else keys.shape[1]
    count = len(keys)
    if keys.ndim > 2 or width not in (1, 2):
        raise ValueError(f"keys are numbers or rows of two, not an array of shape {keys.shape}.")
    if count > MOST_KEYS:
        raise ValueError(f"{count} keys are too many at once: part them, by their first byte for one.")
    flat = np.ascontiguousarray(keys, np.uint64).reshape(-1)
    parts = min(MOST_PARTS, count // PART + 1)
    out = np.empty(count, np.int64)
    table = np.empty(1 << max(3, (2 * count).bit_length()), np.uint32)  # touched as far as the largest part needs
    room = (np.zeros(parts + 1, np.int64), np.empty_like(flat), np.empty(count, np.uint32), table)
    FIND_FIRST(flat, width, np.uint64(SALT), *room, out)
    return out


def union_edges(parent: Array, left: Array, right: Array) -> None:
    """Unite the sets of numbers that each pair is in. ``parent`` is ``arange(n)`` at first, ``int64`` or ``uint32``.

    In it each number points at a smaller one of its set or, the smallest, at itself. What sets come of it, and the
    `labels` of them, do not depend on the order of the pairs.
    """
    pairs = (np.ascontiguousarray(side, np.int64) for side in (left, right))
    UNITE[parent.dtype.name](parent, *pairs)


def labels(parent: Array) -> Array:
    """Point each number in ``parent``, which `union_edges` has made, at the smallest of its set; returns it."""
    LABEL[parent.dtype.name](parent)
    return parent
