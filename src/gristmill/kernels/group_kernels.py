"""Find equal keys, and sets of numbers that pairs link."""

from __future__ import annotations

import numpy as np

from gristmill.kernels.compile import helper, kernel
from gristmill.kernels.mixing import FOLD, MIX_1

_HALF = np.uint64(32)
_LOW = np.uint64(0xFFFFFFFF)


@helper
def spread(keys, k, width, salt):
    """Return the place of a key: its part by the upper half, the slot in the part's table by the lower half."""
    h = (keys[k * width] ^ salt) * MIX_1
    if width == 2:
        h = (h ^ (h >> _HALF) ^ keys[k * width + 1]) * FOLD
    h ^= h >> _HALF
    return h * MIX_1


@kernel("hashes int64 uint64 out_ints out_hashes out_lengths out_lengths out_ints")
def find_first(keys, width, salt, edges, parted, places, table, out):
    """Write the first place of a key equal to key ``k`` to ``out[k]``. A key is ``width`` numbers, 1 or 2.

    Keys are moved in order to parts whose tables stay in the cache, and compared there. ``edges`` has one entry more
    than there are parts, and holds 0. The length of ``table`` is a power of two, at least twice the number of keys,
    since all may be in one part.
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
        end = edges[part]  # by now where the next part begins
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
def root_of(parent, k):
    """Return the smallest number that is known to be linked with ``k``, and halve the path to it."""
    while parent[k] != k:
        parent[k] = parent[parent[k]]
        k = np.int64(parent[k])
    return k


@helper
def unite(parent, left, right):
    for p in range(len(left)):
        a = root_of(parent, np.int64(left[p]))
        b = root_of(parent, np.int64(right[p]))
        if a < b:
            parent[b] = a
        elif b < a:
            parent[a] = b


@helper
def compress(parent):
    for k in range(len(parent)):  # a smaller number has its label already
        parent[k] = parent[parent[k]]


@kernel("out_ints ints ints")
def unite_ints(parent, left, right):
    """Unite the sets of each pair. ``parent[k] <= k`` always holds."""
    unite(parent, left, right)


@kernel("out_lengths ints ints")
def unite_uint32(parent, left, right):
    """Do the same with half the memory."""
    unite(parent, left, right)


@kernel("out_ints")
def label_ints(parent):
    """Point each number at the smallest of its set."""
    compress(parent)


@kernel("out_lengths")
def label_uint32(parent):
    """Do the same with half the memory."""
    compress(parent)
