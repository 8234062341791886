"""Repeated n-grams of words, for all n up to a largest.

A repeated (n+1)-gram has repeated n-grams at both of its ends. So the n-grams that are looked at are those that begin
where a repeated (n-1)-gram is followed, one word on, by another: few in prose, and soon none. Each is known by the
two (n-1)-grams in it, and those by where they first stand: two numbers, compared exactly. Only words go by a hash.
"""

from __future__ import annotations

import numpy as np

from gristmill.kernels.compile import HASHES, HASHES_OUT, INTS, LENGTHS, TABLE_OUT, helper, kernel
from gristmill.kernels.utf8 import M1


@helper
def covered(places, firsts, count, wanted, n, edges, gap):  # type: ignore[no-untyped-def]
    """The characters in some of the repeated n-grams, each counted once, with ``gap`` between their words.

    ``wanted`` is where the n-gram first stands of which all occurrences count; with -1 all n-grams count, but each
    not where it stands first.
    """
    chars = 0
    done = -1
    for k in range(count):
        place = places[k]
        if (firsts[k] == place) if wanted < 0 else (firsts[k] != wanted):
            continue
        if place < done:
            chars += edges[place + n] - edges[done]
        else:
            chars += edges[place + n] - edges[place] - gap
        done = place + n
    return chars


@kernel(
    HASHES, LENGTHS, INTS, INTS, "int64", "uint64", "Array(int32, 1, 'C')", HASHES_OUT, TABLE_OUT, TABLE_OUT, TABLE_OUT
)
def repeated_ngrams(hashes, lengths, first, last, gap, salt, table, keys, room, top, duplicate):  # type: ignore[no-untyped-def]
    """``top[n - 1]``: characters in the most frequent n-gram, ``duplicate[n - 1]``: in n-grams that stood before.

    Words have ``gap`` characters between them. ``salt`` changes where keys stand in the table, not what is found.
    Both arrays must hold zeros when they are given. ``keys`` and ``room`` (four rows) have a place more than the
    longest document has words; ``table`` is as long as a power of two that is four times that.
    """
    places = room[0]  # by candidate: where it begins
    firsts = room[1]  # by candidate: where the same n-gram begins first
    counts = room[2]  # by place, of those where an n-gram stands first
    edges = room[3]
    largest = len(top)
    for d in range(len(first)):
        words = last[d] - first[d]
        offset = first[d]
        candidates = words
        for w in range(words):
            keys[w] = hashes[offset + w]
            places[w] = w
        have_edges = False
        for n in range(1, min(largest, words) + 1):
            if n > 1:
                found = 0
                for k in range(candidates - 1):
                    if places[k] + 1 == places[k + 1]:
                        places[found] = places[k]
                        keys[found] = np.uint64(firsts[k]) << np.uint64(32) | np.uint64(firsts[k + 1])
                        found += 1
                candidates = found
            if candidates < 2:
                break
            size = 16
            while size < 4 * candidates:
                size *= 2
            for k in range(size):
                table[k] = -1
            for k in range(candidates):
                key = keys[k]
                slot = np.int64(((key ^ salt) * M1) >> np.uint64(32)) & (size - 1)
                while table[slot] >= 0 and keys[table[slot]] != key:
                    slot = (slot + 1) & (size - 1)
                if table[slot] < 0:
                    table[slot] = k
                    firsts[k] = places[k]
                    counts[places[k]] = 1
                else:
                    firsts[k] = places[table[slot]]
                    counts[firsts[k]] += 1
            best = 1
            best_first = -1
            found = 0
            for k in range(candidates):
                count = counts[firsts[k]]
                if count > 1:
                    if count > best:
                        best = count
                        best_first = firsts[k]
                    places[found] = places[k]
                    firsts[found] = firsts[k]
                    found += 1
            candidates = found
            if found == 0:
                break
            if not have_edges:
                have_edges = True
                edges[0] = 0
                for w in range(words):
                    edges[w + 1] = edges[w] + np.int64(lengths[offset + w]) + gap
            top[n - 1, d] = covered(places, firsts, found, best_first, n, edges, gap)
            duplicate[n - 1, d] = covered(places, firsts, found, -1, n, edges, gap)
