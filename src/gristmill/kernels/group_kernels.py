"""Which keys are equal, and which numbers hang together."""

from __future__ import annotations

import numpy as np

from gristmill.kernels.compile import HASHES, HASHES_OUT, INTS, INTS_OUT, LENGTHS_OUT, helper, kernel
from gristmill.kernels.mixing import FOLD, MIX_1

_HALF = np.uint64(32)
_LOW = np.uint64(0xFFFFFFFF)


@helper
def spread(keys, k, width, salt):  # type: ignore[no-untyped-def]
    """Where a key goes: the upper half says which part, the lower half where in its table."""
    h = (keys[k * width] ^ salt) * MIX_1
    if width == 2:
        h = (h ^ (h >> _HALF) ^ keys[k * width + 1]) * FOLD
    h ^= h >> _HALF
    return h * MIX_1


@kernel(HASHES, "int64", "uint64", INTS_OUT, HASHES_OUT, LENGTHS_OUT, LENGTHS_OUT, INTS_OUT)
def find_first(keys, width, salt, edges, parted, places, table, out):  # type: ignore[no-untyped-def]
    """``out[k]``: the first place of a key equal to key ``k``. A key is ``width`` numbers, 1 or 2.

    Keys are moved to parts whose tables stay in the cache, in the order in which they stand, and found there.
    ``edges`` has an entry more than there are parts, and holds 0; ``table`` is a power of two, at least twice the keys
    of any part: how many those are is not known before, so it is at least twice of all.
    """
    count = len(out)
    parts = np.uint64(len(edges) - 1)
    for k in range(count):
        edges[(((spread(keys, k, width, salt) >> _HALF) * parts) >> _HALF) + np.uint64(1)] += 1
    for part in range(len(edges) - 1):
        edges[part + 1] += edges[part]
    for k in range(count):
        part = ((spread(keys, k, width, salt) >> _HALF) * parts) >> _HALF
        to = edges[part]
        edges[part] = to + 1
        places[to] = np.uint32(k)
        for j in range(width):
            parted[to * width + j] = keys[k * width + j]
    begin = 0
    for part in range(len(edges) - 1):
        end = edges[part]  # moved on to the next part's begin by now
        size = 8
        while size < 2 * (end - begin):
            size *= 2
        mask = np.uint64(size - 1)
        for slot in range(size):
            table[slot] = 0
        for k in range(begin, end):
            slot = spread(parted, k, width, salt) & mask
            first = -1
            while table[slot]:
                there = begin + np.int64(table[slot]) - 1
                if parted[there * width] == parted[k * width] and (
                    width == 1 or parted[there * width + 1] == parted[k * width + 1]
                ):
                    first = there
                    break
                slot = (slot + np.uint64(1)) & mask
            if first < 0:
                first = k
                table[slot] = np.uint32(k - begin + 1)
            out[places[k]] = places[first]
        begin = end


@helper
def root_of(parent, k):  # type: ignore[no-untyped-def]
    """The smallest number known to hang together with ``k``; the way there is halved."""
    while parent[k] != k:
        parent[k] = parent[parent[k]]
        k = np.int64(parent[k])
    return k


@helper
def unite(parent, left, right):  # type: ignore[no-untyped-def]
    for p in range(len(left)):
        a = root_of(parent, np.int64(left[p]))
        b = root_of(parent, np.int64(right[p]))
        if a < b:
            parent[b] = a
        elif b < a:
            parent[a] = b


@helper
def compress(parent):  # type: ignore[no-untyped-def]
    for k in range(len(parent)):  # who comes before has its label already
        parent[k] = parent[parent[k]]


@kernel(INTS_OUT, INTS, INTS)
def unite_ints(parent, left, right):  # type: ignore[no-untyped-def]
    """Unite the sets of each pair. ``parent[k] <= k`` at all times."""
    unite(parent, left, right)


@kernel(LENGTHS_OUT, INTS, INTS)
def unite_uint32(parent, left, right):  # type: ignore[no-untyped-def]
    """The same, with half the memory."""
    unite(parent, left, right)


@kernel(INTS_OUT)
def label_ints(parent):  # type: ignore[no-untyped-def]
    """Point each number at the smallest of its set."""
    compress(parent)


@kernel(LENGTHS_OUT)
def label_uint32(parent):  # type: ignore[no-untyped-def]
    """The same, with half the memory."""
    compress(parent)
