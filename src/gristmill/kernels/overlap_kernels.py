"""N-grams of words that documents share with a reference.

Words are found as the text is read; only as many of the last ones are remembered as an n-gram can have, in rings whose
length is a power of two. An n-gram is known by a hash of the hashes of its words: the difference of two prefix hashes.

How much a word counts depends on its script (see `overlap`): an n-gram begins at each word and goes on until its words
weigh enough, so that of words between spaces each n-gram has the same number.
"""

from __future__ import annotations

import numpy as np

from gristmill.kernels.compile import BYTES, HASHES, HASHES_OUT, INTS, INTS_OUT, LENGTHS, TABLE_OUT, helper, kernel
from gristmill.kernels.utf8 import M1, SEED, finish, mix, width_at

SPACE = np.uint32(1 << 31)
KIND_SHIFT = np.uint32(24)
KINDS = np.uint32(3)
BASE = np.uint64(0xA24BAED4963EE407)
_ONE = np.uint64(1)
_NO_CHARACTER = 0xFFFF


@helper
def code_at(data, i, width):  # type: ignore[no-untyped-def]
    """The code point of ``width`` bytes at ``i``, in a text that is UTF-8."""
    lead = np.int64(data[i])
    if width == 1:
        return lead if lead < 0x80 else np.int64(_NO_CHARACTER)
    if width == 2:
        return (lead & 0x1F) << 6 | np.int64(data[i + 1]) & 0x3F
    if width == 3:
        return (lead & 0x0F) << 12 | (np.int64(data[i + 1]) & 0x3F) << 6 | np.int64(data[i + 2]) & 0x3F
    code = (lead & 0x07) << 18 | (np.int64(data[i + 1]) & 0x3F) << 12
    code |= (np.int64(data[i + 2]) & 0x3F) << 6 | np.int64(data[i + 3]) & 0x3F
    return min(code, np.int64(0x10FFFF))


@helper
def next_word(data, i, end, folds):  # type: ignore[no-untyped-def]
    """The next word from ``i`` on: where to go on, its hash, where it begins and ends, its kind.

    It begins at -1 if there is none. Characters that ``folds`` leaves out belong to no word and part none.
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
def key_of(upper, lower, power, words):  # type: ignore[no-untyped-def]
    """The key of the words between two prefixes, with that many words."""
    h = (upper - lower * power) ^ (np.uint64(words) * M1)
    h = mix(h, h >> np.uint64(29))
    return finish(h, words)


@helper
def has_bit(bits, key):  # type: ignore[no-untyped-def]
    """Whether a key may be among those that ``bits``, a power of two of them, were set for."""
    place = key & np.uint64(8 * len(bits) - 1)
    return (bits[place >> np.uint64(3)] >> np.uint8(place & np.uint64(7))) & np.uint8(1)


@kernel(BYTES, INTS, INTS, LENGTHS, INTS, HASHES, "int64", "int64", HASHES_OUT, INTS_OUT, HASHES_OUT, TABLE_OUT,
        HASHES_OUT)  # fmt: skip
def list_ngrams(  # type: ignore[no-untyped-def]
    data, starts, ends, folds, weights, powers, wanted, least, prefixes, ring, keys, about, lasts
):
    """The n-grams of each text, in ``keys``; returns how many there are.

    Of each ``about`` has the text that it is of and its number of words if it is a whole text, that is, one which does
    not weigh ``wanted``; otherwise 0. ``lasts`` has the last word of those. Texts below ``least`` have no n-gram.
    """
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


@kernel(HASHES, BYTES.replace(", readonly=True", ""))
def set_bits(keys, bits):  # type: ignore[no-untyped-def]
    """Mark keys in ``bits``, for `has_bit`."""
    mask = np.uint64(8 * len(bits) - 1)
    for k in range(len(keys)):
        place = keys[k] & mask
        bits[place >> np.uint64(3)] |= np.uint8(1) << np.uint8(place & np.uint64(7))


@helper
def slot_of(key, mask):  # type: ignore[no-untyped-def]
    return np.int64((key >> np.uint64(20)) & mask)


@kernel(HASHES, INTS_OUT)
def fill_table(keys, table):  # type: ignore[no-untyped-def]
    """Put different keys into a table of a power of two of places, more than there are keys, that holds -1."""
    mask = np.uint64(len(table) - 1)
    for k in range(len(keys)):
        slot = slot_of(keys[k], mask)
        while table[slot] >= 0:
            slot = (slot + 1) & (len(table) - 1)
        table[slot] = k


@helper
def look_up(key, bits, table, keys):  # type: ignore[no-untyped-def]
    """The number of a key, or -1."""
    if not has_bit(bits, key):
        return np.int64(-1)
    slot = slot_of(key, np.uint64(len(table) - 1))
    while table[slot] >= 0:
        if keys[table[slot]] == key:
            return table[slot]
        slot = (slot + 1) & (len(table) - 1)
    return np.int64(-1)


@helper
def note(gram, stamp, edges, owners, seen, counts, needs, sizes, by_share, best):  # type: ignore[no-untyped-def]
    """Count an n-gram for the entries that have it, once in a document; returns the entry that overlaps most."""
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
def is_wanted(gram, stamp, edges, owners, counts, needs):  # type: ignore[no-untyped-def]
    """Whether an n-gram belongs to an entry that a document overlaps enough."""
    for at in range(edges[gram], edges[gram + 1]):
        entry = owners[at]
        if counts[0, entry] == stamp and counts[1, entry] >= needs[entry]:
            return True
    return False


@helper
def add_span(spans, total, floor, begin, end):  # type: ignore[no-untyped-def]
    """Add a span, or lengthen the last one of this document if they touch; -1 if there is no room."""
    if total > floor and begin >= spans[0, total - 1] and begin <= spans[1, total - 1]:
        spans[1, total - 1] = max(spans[1, total - 1], end)
        return total
    if total == spans.shape[1]:
        return np.int64(-1)
    spans[0, total] = begin
    spans[1, total] = end
    return total + 1


@helper
def scan(  # type: ignore[no-untyped-def]
    data, start, end, folds, weights, powers, wanted, prefixes, ring, bits, table, keys, lasts, lengths, stamp,
    edges, owners, seen, counts, needs, sizes, by_share, spans, total, marks
):  # fmt: skip
    """One document: count, or with ``marks`` list the spans of what was counted.

    Returns the entry that overlaps most, or the number of spans, -1 if there is no room for them.
    """
    mask = len(prefixes) - 1
    floor = total
    best = np.int64(-1)
    i = start
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
        while weight >= wanted:
            words = count - first
            key = key_of(prefixes[count & mask], prefixes[first & mask], powers[words], words)
            gram = look_up(key, bits, table, keys)
            if gram >= 0:
                if not marks:
                    best = note(gram, stamp, edges, owners, seen, counts, needs, sizes, by_share, best)
                elif is_wanted(gram, stamp, edges, owners, counts, needs):
                    total = add_span(spans, total, floor, ring[1, first & mask], stop)
                    if total < 0:
                        return total
            weight -= ring[0, first & mask]
            first += 1
        if len(lengths) and has_bit(lasts, h):
            for n in range(len(lengths)):
                words = lengths[n]
                if words > count:
                    break
                from_ = count - words
                key = key_of(prefixes[count & mask], prefixes[from_ & mask], powers[words], words)
                gram = look_up(key, bits, table, keys)
                if gram >= 0:
                    if not marks:
                        best = note(gram, stamp, edges, owners, seen, counts, needs, sizes, by_share, best)
                    elif is_wanted(gram, stamp, edges, owners, counts, needs):
                        total = add_span(spans, total, floor, ring[1, from_ & mask], stop)
                        if total < 0:
                            return total
    return np.int64(total) if marks else best


@kernel(
    BYTES, INTS, INTS, LENGTHS, INTS, HASHES, "int64", HASHES_OUT, TABLE_OUT, BYTES, INTS, HASHES, BYTES, INTS,
    INTS, INTS, TABLE_OUT, TABLE_OUT, INTS, INTS, "int64", "int64", "int64", TABLE_OUT, TABLE_OUT, INTS_OUT,
)  # fmt: skip
def find_overlaps(  # type: ignore[no-untyped-def]
    data, starts, ends, folds, weights, powers, wanted, prefixes, ring, bits, table, keys, lasts, lengths,
    edges, owners, seen, counts, needs, sizes, by_share, begin, stamp, out, spans, span_edges
):  # fmt: skip
    """For each document ``out``: the entry of the reference that it overlaps most, or -1, and by how many n-grams.

    An entry counts from ``needs`` different n-grams on. What is common is listed in ``spans``, in bytes of ``data``,
    unless that has no places at all; those of document ``d`` begin at ``span_edges[d]``. Documents from ``begin`` on
    are done as long as there is room; returns where to go on, with a ``stamp`` above all before.
    """
    for d in range(begin, len(starts)):
        stamp += 1
        best = scan(
            data, starts[d], ends[d], folds, weights, powers, wanted, prefixes, ring, bits, table, keys, lasts,
            lengths, stamp, edges, owners, seen, counts, needs, sizes, by_share, spans, np.int64(0), False,
        )  # fmt: skip
        out[0, d] = best
        out[1, d] = counts[1, best] if best >= 0 else 0
        total = span_edges[d]
        if best >= 0 and spans.shape[1]:
            total = scan(
                data, starts[d], ends[d], folds, weights, powers, wanted, prefixes, ring, bits, table, keys, lasts,
                lengths, stamp, edges, owners, seen, counts, needs, sizes, by_share, spans, total, True,
            )  # fmt: skip
            if total < 0:
                return d
        span_edges[d + 1] = total
    return len(starts)
