"""N-grams of words that documents share with a reference.

Words are found as the text is read. Only the latest words are remembered, as many as an n-gram can have, in rings whose
length is a power of two. An n-gram is known by a hash of the hashes of its words: the difference of two prefix hashes.

The weight of a word depends on its script (see `overlap`). An n-gram begins at each word and is complete when its words
have the wanted weight, so all n-grams of words between spaces have the same number of words.

Arguments that belong together are tuples:

- ``rules``: folds of characters, weights of words, powers of `BASE`, the wanted weight.
- ``rings``: prefix hashes, and what is remembered of each word (weight; in `find_overlaps` also where it begins).
- ``index``: bits, table and keys of the n-grams; bits of the final words and lengths of texts that are one n-gram.
- ``entries``: edges and owners of the n-grams; n-grams that an entry needs and has; whether the largest share decides;
  the document that had an n-gram last; the document that had an entry last, and the n-grams of both.
"""

from __future__ import annotations

import numpy as np

from gristmill.kernels.compile import helper, kernel
from gristmill.kernels.utf8 import M1, SEED, code_at, finish, mix, width_at

SPACE = np.uint32(1 << 31)
KIND_SHIFT = np.uint32(24)
KINDS = np.uint32(3)
BASE = np.uint64(0xA24BAED4963EE407)
_ONE = np.uint64(1)


@helper
def next_word(data, i, end, folds):
    """Find the next word from ``i`` on. Return the place after it, its hash, where it begins and ends, and its kind.

    The word begins at -1 if there is none. Characters that are 0 in ``folds`` are skipped, also inside words.
    """
    h = SEED
    begin = -1
    stop = -1
    length = 0
    while i < end:
        if data[i] < 0x80:
            width = 1
            folded = folds[data[i]]
        else:
            width = width_at(data, i, end)
            folded = folds[code_at(data, i, width)]
        kind = (folded >> KIND_SHIFT) & KINDS
        if folded & SPACE:
            i += width
            if length:
                break
        elif folded == 0:
            i += width
        elif kind:
            if length:
                break
            return i + width, finish(mix(h, np.uint64(folded)), 1), i, i + width, np.int64(kind)
        else:
            if length == 0:
                begin = i
            h = mix(h, np.uint64(folded))
            length += 1
            i += width
            stop = i
    return i, finish(h, length), begin, stop, np.int64(0)


@helper
def key_of(upper, lower, power, words):
    """Return the key of the words between two prefixes."""
    h = (upper - lower * power) ^ (np.uint64(words) * M1)
    h = mix(h, h >> np.uint64(29))
    return finish(h, words)


@helper
def has_bit(bits, key):
    """Return whether a key may be among those whose bits are set. The number of bits is a power of two."""
    place = key & np.uint64(8 * len(bits) - 1)
    return (bits[place >> np.uint64(3)] >> np.uint8(place & np.uint64(7))) & np.uint8(1)


@kernel("texts (lengths ints hashes int64) int64 (out_hashes out_ints) out_hashes out_ints_rows out_hashes")
def list_ngrams(texts, rules, least, rings, keys, about, lasts):
    """Write the n-grams of all texts to ``keys``. Return their number.

    ``about`` has the number of the n-gram's text, and the words of the text if it is one n-gram as a whole because it
    has less than the wanted weight, else 0. ``lasts`` has the last word of such texts. A text whose weight is below
    ``least`` has no n-gram.
    """
    data, starts, ends = texts
    folds, weights, powers, wanted = rules
    prefixes, ring = rings
    mask = len(prefixes) - 1
    total = 0
    for d in range(len(starts)):
        i = starts[d]
        prefixes[0] = 0
        count = 0
        first = 0
        weight = 0
        whole = 0
        last = np.uint64(0)
        while True:
            i, h, begin, _, kind = next_word(data, i, ends[d], folds)
            if begin < 0:
                break
            ring[count & mask] = weights[kind]
            weight += weights[kind]
            whole += weights[kind]
            prefixes[(count + 1) & mask] = prefixes[count & mask] * BASE + h
            last = h
            count += 1
            while weight >= wanted:
                words = count - first
                keys[total] = key_of(prefixes[count & mask], prefixes[first & mask], powers[words], words)
                about[0, total] = d
                about[1, total] = 0
                total += 1
                weight -= ring[first & mask]
                first += 1
        if whole < wanted and whole >= least and count:
            keys[total] = key_of(prefixes[count & mask], prefixes[0], powers[count], count)
            about[0, total] = d
            about[1, total] = count
            lasts[total] = last
            total += 1
    return total


@kernel("hashes out_bytes")
def set_bits(keys, bits):
    """Set the bits of keys, for `has_bit`."""
    mask = np.uint64(8 * len(bits) - 1)
    for k in range(len(keys)):
        place = keys[k] & mask
        bits[place >> np.uint64(3)] |= np.uint8(1) << np.uint8(place & np.uint64(7))


@helper
def slot_of(key, mask):
    return np.int64((key >> np.uint64(20)) & mask)


@kernel("hashes out_ints")
def fill_table(keys, table):
    """Put different keys into a table that holds -1 and is longer than the keys. Its length is a power of two."""
    mask = np.uint64(len(table) - 1)
    for k in range(len(keys)):
        slot = slot_of(keys[k], mask)
        while table[slot] >= 0:
            slot = (slot + 1) & (len(table) - 1)
        table[slot] = k


@helper
def look_up(key, index):
    """Return the number of a key, or -1."""
    bits, table, keys, _, _ = index
    if not has_bit(bits, key):
        return np.int64(-1)
    slot = slot_of(key, np.uint64(len(table) - 1))
    while table[slot] >= 0:
        if keys[table[slot]] == key:
            return table[slot]
        slot = (slot + 1) & (len(table) - 1)
    return np.int64(-1)


@helper
def count_ngram(gram, stamp, entries, best):
    """Count an n-gram for its entries, once in a document. Return the entry that overlaps most."""
    edges, owners, needs, sizes, by_share, seen, counts = entries
    if seen[0, gram] == stamp:
        return best
    seen[0, gram] = stamp
    for at in range(edges[gram], edges[gram + 1]):
        entry = owners[at]
        if counts[0, entry] != stamp:
            counts[0, entry] = stamp
            counts[1, entry] = 0
        counts[1, entry] += 1
        mine = counts[1, entry]
        if mine < needs[entry]:
            continue
        if best < 0:
            best = entry
            continue
        theirs = counts[1, best]
        if by_share:
            mine *= sizes[best]
            theirs *= sizes[entry]
        if mine > theirs or (mine == theirs and entry < best):
            best = entry
    return best


@helper
def is_wanted(gram, stamp, entries):
    """Return whether an n-gram belongs to an entry that the document overlaps enough."""
    edges, owners, needs, _, _, _, counts = entries
    for at in range(edges[gram], edges[gram + 1]):
        entry = owners[at]
        if counts[0, entry] == stamp and counts[1, entry] >= needs[entry]:
            return True
    return False


@helper
def add_span(spans, total, floor, begin, end):
    """Add a span, or extend the last one of this document if they touch. Return their number, -1 if it does not fit."""
    if total > floor and begin >= spans[0, total - 1] and begin <= spans[1, total - 1]:
        spans[1, total - 1] = max(spans[1, total - 1], end)
        return total
    if total == spans.shape[1]:
        return np.int64(-1)
    spans[0, total] = begin
    spans[1, total] = end
    return total + 1


@helper
def scan(text, rules, rings, index, entries, stamp, found, marks):
    """Count the n-grams of one document, or with ``marks`` list the spans of those that were counted.

    ``found`` are the spans and their number. Return the entry that overlaps most, or the number of spans, -1 if they
    do not fit.
    """
    data, i, end = text
    folds, weights, powers, wanted = rules
    prefixes, ring = rings
    _, _, _, lasts, lengths = index
    spans, total = found
    mask = len(prefixes) - 1
    floor = total
    best = np.int64(-1)
    prefixes[0] = 0
    count = 0
    first = 0
    weight = 0
    while True:
        i, h, begin, stop, kind = next_word(data, i, end, folds)
        if begin < 0:
            break
        ring[0, count & mask] = weights[kind]
        ring[1, count & mask] = begin
        weight += weights[kind]
        prefixes[(count + 1) & mask] = prefixes[count & mask] * BASE + h
        count += 1
        # First the n-grams that end with this word, then the whole texts that do.
        whole_texts = len(lengths) if len(lengths) and has_bit(lasts, h) else 0
        n = 0
        while weight >= wanted or n < whole_texts:
            if weight >= wanted:
                from_ = first
                weight -= ring[0, first & mask]
                first += 1
            elif lengths[n] > count:
                break
            else:
                from_ = count - lengths[n]
                n += 1
            words = count - from_
            gram = look_up(key_of(prefixes[count & mask], prefixes[from_ & mask], powers[words], words), index)
            if gram < 0:
                continue
            if not marks:
                best = count_ngram(gram, stamp, entries, best)
            elif is_wanted(gram, stamp, entries):
                total = add_span(spans, total, floor, ring[1, from_ & mask], stop)
                if total < 0:
                    return total
    return np.int64(total) if marks else best


@kernel(
    "texts (lengths ints hashes int64) (out_hashes out_ints_rows) (bytes ints hashes bytes ints) "
    "(ints ints ints ints int64 out_ints_rows out_ints_rows) (int64 int64) out_ints_rows (out_ints_rows out_ints)"
)
def find_overlaps(texts, rules, rings, index, entries, progress, out, found):
    """Write to ``out`` for each document the entry that it overlaps most, or -1, and the number of common n-grams.

    An entry counts if the document has as many different n-grams of it as the entry needs. What is common is listed in
    spans of bytes of the data, unless there is no space for any; those of document ``d`` begin at ``span_edges[d]``.
    ``progress`` are the document to begin with and a stamp above all earlier ones. Return the first document that is
    not done for lack of space.
    """
    data, starts, ends = texts
    begin, stamp = progress
    spans, span_edges = found
    counts = entries[6]
    for d in range(begin, len(starts)):
        stamp += 1
        text = (data, starts[d], ends[d])
        best = scan(text, rules, rings, index, entries, stamp, (spans, np.int64(0)), False)
        out[0, d] = best
        out[1, d] = counts[1, best] if best >= 0 else 0
        total = span_edges[d]
        if best >= 0 and spans.shape[1]:
            total = scan(text, rules, rings, index, entries, stamp, (spans, total), True)
            if total < 0:
                return d
        span_edges[d + 1] = total
    return len(starts)
