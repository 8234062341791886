"""Repeated n-grams of words, for all n from a smallest to a largest.

A repeated (n+1)-gram has repeated n-grams at both of its ends. So the candidates for n are places where a repeated
(n-1)-gram is followed, one word later, by another one: few in prose, and soon none. A candidate's key are its two
(n-1)-grams, each given by its first place: two numbers that are compared exactly. Only words, and pairs of words if
pairs are the smallest, are compared by a hash.

The processor cannot predict whether an n-gram is repeated, so no branch depends on it.
"""

from __future__ import annotations

import numpy as np

from gristmill.kernels.compile import helper, kernel
from gristmill.kernels.utf8 import M1

_ONE = np.uint32(1)


@helper
def covered(places, firsts, count, wanted, n, edges, gap):
    """Return the characters in some of the repeated n-grams, each counted once, with ``gap`` between their words.

    ``wanted`` is the first place of the n-gram whose occurrences count. If it is -1, all occurrences of all n-grams
    count except the first ones.
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
def find_firsts(keys, places, count, table, firsts, counts, salt):
    """Find the first place of each candidate's key, and count the candidates by that place."""
    size = 16
    while size < 4 * count:
        size *= 2
    none = np.uint32(count)  # after the last candidate: there is a key there, without a meaning
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
def keep_repeated(places, firsts, counts, count):
    """Move the candidates that occur more than once to the front.

    Return their number, and the first place of the most frequent one.
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
def lengthen(places, firsts, count, keys):
    """Join candidates that begin one word apart to candidates one word longer. Return their number."""
    found = 0
    for k in range(count - 1):
        place = places[k]
        keys[found] = np.uint64(firsts[k]) << np.uint64(32) | np.uint64(firsts[k + 1])
        next_ = places[k + 1]
        places[found] = place
        found += place + _ONE == next_
    return found


@kernel(
    "(hashes lengths ints ints) (int64 int64 uint64) (out_lengths out_hashes out_lengths_rows out_ints) "
    "out_ints_rows out_ints_rows"
)
def repeated_ngrams(words, options, work, top, duplicate):
    """Write characters in the most frequent n-gram to ``top[n - 1]``, in repetitions to ``duplicate[n - 1]``.

    ``words`` are hashes, lengths, and the first and last word of each document. ``options`` are the smallest n (1 or
    2), the characters between two words, and a salt, which changes places in the table and no result. ``work`` are a
    table, keys, three rows and edges. The rows, keys and edges have one place more than the longest document has
    words; the length of the table is a power of two of at least four times that. ``top`` and ``duplicate`` must hold
    zeros before the call.
    """
    hashes, lengths, first, last = words
    smallest, gap, salt = options
    table, keys, rows, edges = work
    places = rows[0]  # of each candidate: where it begins
    firsts = rows[1]  # of each candidate: where the same n-gram begins first
    counts = rows[2]  # of each place where an n-gram begins first
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
