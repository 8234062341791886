"""Repeated n-grams of words, for all n from a smallest to a largest.

A repeated (n+1)-gram has repeated n-grams at both of its ends. So the n-grams that are looked at are those that begin
where a repeated (n-1)-gram is followed, one word on, by another: few in prose, and soon none. Each is known by the
two (n-1)-grams in it, and those by where they first stand: two numbers, compared exactly. Only words, and pairs of
words where pairs are the smallest, go by a hash.

Whether an n-gram stood before cannot be foretold, so nothing branches on it.
"""

from __future__ import annotations

import numpy as np

from gristmill.kernels.compile import (
    HASHES,
    HASHES_OUT,
    INTS,
    INTS_OUT,
    LENGTHS,
    LENGTHS_OUT,
    TABLE_OUT,
    helper,
    kernel,
)
from gristmill.kernels.utf8 import M1

_ONE = np.uint32(1)


@helper
def covered(places, firsts, count, wanted, n, edges, gap):  # type: ignore[no-untyped-def]
    """The characters in some of the repeated n-grams, each counted once, with ``gap`` between their words.

    ``wanted`` is where the n-gram first stands of which all occurrences count; with -1 all n-grams count, but each
    not where it stands first.
    """
    chars = 0
    done = -1
    for k in range(count):
        place = np.int64(places[k])
        first = np.int64(firsts[k])
        if (first == place) if wanted < 0 else (first != wanted):
            continue
        if place < done:
            chars += edges[place + n] - edges[done]
        else:
            chars += edges[place + n] - edges[place] - gap
        done = place + n
    return chars


@helper
def find_firsts(keys, places, count, table, firsts, counts, salt):  # type: ignore[no-untyped-def]
    """Where a candidate with the same key stands first, for each; how many there are, by that place."""
    size = 16
    while size < 4 * count:
        size *= 2
    none = np.uint32(count)  # behind the last candidate: there is a key there, of no meaning
    for slot in range(size):
        table[slot] = none
    for k in range(count):
        counts[places[k]] = 0
    mask = np.uint64(size - 1)
    for k in range(count):
        key = keys[k]
        slot = (((key ^ salt) * M1) >> np.uint64(32)) & mask
        there = table[slot]
        while (there != none) & (keys[there] != key):
            slot = (slot + np.uint64(1)) & mask
            there = table[slot]
        first = np.uint32(k) if there == none else there
        table[slot] = first
        place = places[first]
        firsts[k] = place
        counts[place] += _ONE


@helper
def keep_repeated(places, firsts, counts, count):  # type: ignore[no-untyped-def]
    """Move the candidates that are there more than once to the front.

    Returns how many those are, and where the most frequent one stands first.
    """
    best = _ONE
    best_first = -1
    found = 0
    for k in range(count):
        first = firsts[k]
        times = counts[first]
        places[found] = places[k]
        firsts[found] = first
        found += times > _ONE
        if times > best:
            best = times
            best_first = np.int64(first)
    return found, best_first


@helper
def lengthen(places, firsts, count, keys):  # type: ignore[no-untyped-def]
    """Make candidates that are a word longer of those that begin one word apart; returns how many there are."""
    found = 0
    for k in range(count - 1):
        place = places[k]
        keys[found] = np.uint64(firsts[k]) << np.uint64(32) | np.uint64(firsts[k + 1])
        next_ = places[k + 1]
        places[found] = place
        found += place + _ONE == next_
    return found


@kernel(
    HASHES,
    LENGTHS,
    INTS,
    INTS,
    "int64",
    "int64",
    "uint64",
    LENGTHS_OUT,
    HASHES_OUT,
    "Array(uint32, 2, 'C')",
    INTS_OUT,
    TABLE_OUT,
    TABLE_OUT,
)
def repeated_ngrams(  # type: ignore[no-untyped-def]
    hashes, lengths, first, last, smallest, gap, salt, table, keys, room, edges, top, duplicate
):
    """``top[n - 1]``: characters in the most frequent n-gram, ``duplicate[n - 1]``: in n-grams that stood before.

    ``smallest`` is 1 or 2. Words have ``gap`` characters between them. ``salt`` changes where keys stand in the table,
    not what is found. Both arrays must hold zeros when they are given. ``keys``, ``edges`` and ``room`` (three rows)
    have a place more than the longest document has words; ``table`` is as long as a power of two that is four times
    that.
    """
    places = room[0]  # by candidate: where it begins
    firsts = room[1]  # by candidate: where the same n-gram begins first
    counts = room[2]  # by place, of those where an n-gram stands first
    for d in range(len(first)):
        words = last[d] - first[d]
        offset = first[d]
        candidates = words - smallest + 1
        for k in range(candidates):
            places[k] = np.uint32(k)
            keys[k] = hashes[offset + k] if smallest == 1 else hashes[offset + k] * M1 + hashes[offset + k + 1]
        have_edges = False
        for n in range(smallest, min(len(top), words) + 1):
            if n > smallest:
                candidates = lengthen(places, firsts, candidates, keys)
            if candidates < 2:
                break
            find_firsts(keys, places, candidates, table, firsts, counts, salt)
            candidates, best_first = keep_repeated(places, firsts, counts, candidates)
            if candidates == 0:
                break
            if not have_edges:
                have_edges = True
                edges[0] = 0
                for w in range(words):
                    edges[w + 1] = edges[w] + np.int64(lengths[offset + w]) + gap
            top[n - 1, d] = covered(places, firsts, candidates, best_first, n, edges, gap)
            duplicate[n - 1, d] = covered(places, firsts, candidates, -1, n, edges, gap)
