"""Groups of equal keys, and of numbers that pairs link."""

from __future__ import annotations

from gristmill.kernels.compile import Kernel
from gristmill.kernels.features import SALT
from gristmill.lazy import Array, np

PART = 8192
"""Keys that share a table, which stays in the cache with them."""
MOST_PARTS = 4096
MOST_KEYS = (1 << 31) - 1

FIND_FIRST = Kernel("group_kernels.find_first")
UNITE = {"int64": Kernel("group_kernels.unite_ints"), "uint32": Kernel("group_kernels.unite_uint32")}
LABEL = {"int64": Kernel("group_kernels.label_ints"), "uint32": Kernel("group_kernels.label_uint32")}


def first_equal(keys: Array) -> Array:
    """Return for each key, ``uint64`` or a row of two, the first position of an equal one.

    The time is proportional to the number of keys, however many are equal. It takes 40 bytes of memory for each key,
    including the result.
    """
    width = 1 if keys.ndim == 1 else keys.shape[1]
    count = len(keys)
    if keys.ndim > 2 or width not in (1, 2):
        raise ValueError(f"keys are numbers or rows of two, not an array of shape {keys.shape}.")
    if count > MOST_KEYS:
        raise ValueError(f"{count} keys are too many at once: split them, for example by their first byte.")
    flat = np.ascontiguousarray(keys, np.uint64).reshape(-1)
    parts = min(MOST_PARTS, count // PART + 1)
    out = np.empty(count, np.int64)
    table = np.empty(1 << max(3, (2 * count).bit_length()), np.uint32)  # used as far as the largest part needs
    work = (np.zeros(parts + 1, np.int64), np.empty_like(flat), np.empty(count, np.uint32), table)
    FIND_FIRST(flat, width, np.uint64(SALT), *work, out)
    return out


def union_edges(parent: Array, left: Array, right: Array) -> None:
    """Unite the sets of the two numbers of each pair. ``parent`` is ``arange(n)`` at first, ``int64`` or ``uint32``.

    Each number in it points at a smaller one of its set; the smallest points at itself. The sets and their `labels`
    do not depend on the order of the pairs.
    """
    pairs = (np.ascontiguousarray(side, np.int64) for side in (left, right))
    UNITE[parent.dtype.name](parent, *pairs)


def labels(parent: Array) -> Array:
    """Point each number in ``parent``, made by `union_edges`, at the smallest of its set. Return ``parent``."""
    LABEL[parent.dtype.name](parent)
    return parent
