"""Words: what stands between white space, in any script."""

from __future__ import annotations

import numpy as np

from gristmill.kernels.compile import (
    BYTES,
    CLASSES,
    HASHES,
    HASHES_OUT,
    INTS,
    INTS_OUT,
    LENGTHS_OUT,
    STAGE_1,
    TABLE_OUT,
    helper,
    kernel,
)
from gristmill.kernels.unicode import Class
from gristmill.kernels.utf8 import HIGHS, ONES, SEED, class_at, eight_at, finish, mix, tail_at, width_at
from gristmill.kernels.vector import visible_run

_SPACE = np.uint16(Class.SPACE)
_LETTER = np.uint16(Class.LETTER)
_ALL = np.uint64(0xFFFFFFFFFFFFFFFF)
_CASE = ONES * np.uint64(0x20)
_A = ONES * np.uint64(0x61)
_AFTER_Z = ONES * np.uint64(0x7B)


@helper
def letter_marks(x):  # type: ignore[no-untyped-def]
    """Not 0 if there is an ASCII letter among eight bytes of ASCII."""
    folded = (x | _CASE) | HIGHS
    return (folded - _A) & ~(folded - _AFTER_Z) & HIGHS


@helper
def first_bytes(value, count):  # type: ignore[no-untyped-def]
    """The lowest bytes of a number: all eight, if ``count`` is that or more; none, if it is below 1."""
    # Two shifts, since one by 64 bits means nothing.
    bits = np.uint64(4 * (8 - min(max(count, 0), 8)))
    return value & (_ALL >> bits >> bits)


@helper
def long_way(data, i, end, blocks, classes):  # type: ignore[no-untyped-def]
    """A word from ``i`` on, character by character.

    Returns where it ends, its hash, its length, whether it has a letter, and the width of the white space behind it.
    """
    begin = i
    length = 0
    seen = np.uint16(0)
    space = 0
    while i < end:
        width = width_at(data, i, end)
        bits = class_at(data, i, width, blocks, classes)
        if bits & _SPACE:
            space = width
            break
        seen |= bits
        length += 1
        i += width
    h = SEED
    at = begin
    while at + 16 <= i:
        h = mix(mix(h, eight_at(data, at)), eight_at(data, at + 8))
        at += 16
    h = mix(mix(h, tail_at(data, at, min(i - at, 8))), tail_at(data, at + 8, max(i - at - 8, 0)))
    return i, finish(h, i - begin), length, (seen & _LETTER) != 0, space


@helper
def split_document(data, i, end, blocks, classes, hashes, lengths, total):  # type: ignore[no-untyped-def]
    """The words of one document; they are stored from ``total`` on."""
    chars = 0
    longest = 0
    with_letter = 0
    last = end - 16
    while i < end:
        begin = i
        h = SEED
        letters = np.uint64(0)
        plain = False
        while i <= last:  # sixteen bytes at once, while they are visible ASCII: so much most words have at most
            run = visible_run(data, i)
            low = first_bytes(eight_at(data, i), run)
            high = first_bytes(eight_at(data, i + 8), run - 8)
            h = mix(mix(h, low), high)
            letters |= letter_marks(low) | letter_marks(high)
            i += run
            if run < 16:
                plain = data[i] == 0x20 or data[i] == 0x0A
                break
        if plain:
            length = i - begin
            h = finish(h, length)
            space = 1
        else:
            i, h, length, letter, space = long_way(data, begin, end, blocks, classes)
            letters = np.uint64(letter)
        if length:
            hashes[total] = h
            lengths[total] = length
            total += 1
            chars += length
            longest = max(longest, length)
            with_letter += letters != 0
        i += space
    return total, chars, longest, with_letter


@kernel(BYTES, INTS, INTS, STAGE_1, CLASSES, "int64", HASHES_OUT, LENGTHS_OUT, TABLE_OUT, INTS_OUT)
def split_words(data, starts, ends, blocks, classes, begin, hashes, lengths, out, first):  # type: ignore[no-untyped-def]
    """For each document ``out``: words, characters in words, the longest word, words with a letter.

    ``hashes`` and ``lengths``, in characters, of the words of document ``d`` begin at ``first[d]``, which must be
    there for ``begin``. Documents from that on are done as far as there is surely room; returns where to go on.
    """
    total = first[begin]
    for d in range(begin, len(starts)):
        if total + (ends[d] - starts[d]) // 2 + 1 > len(hashes):
            return d
        # A function of its own: the loop over words is slow where the arrays may be replaced.
        total, out[1, d], out[2, d], out[3, d] = split_document(
            data, starts[d], ends[d], blocks, classes, hashes, lengths, total
        )
        out[0, d] = total - first[d]
        first[d + 1] = total
    return len(starts)


@kernel(HASHES, INTS, INTS, HASHES, INTS, TABLE_OUT)
def count_few_listed(hashes, first, last, listed, table, out):  # type: ignore[no-untyped-def]
    """The same as `count_listed` for lists of at most 64 words, each with a place of its own in ``table``.

    The place is the hash's lowest bits; where no word's is, the table says 0. Which words are listed cannot be
    foretold, so nothing branches on it.
    """
    mask = np.uint64(len(table) - 1)
    for d in range(len(first)):
        count = 0
        seen = np.uint64(0)
        for w in range(first[d], last[d]):
            h = hashes[w]
            k = np.uint64(table[h & mask])
            hit = listed[k] == h
            count += hit
            seen |= np.uint64(hit) << k
        distinct = 0
        while seen:
            seen &= seen - np.uint64(1)
            distinct += 1
        out[0, d] = count
        out[1, d] = distinct


@kernel(HASHES, INTS, INTS, HASHES, INTS_OUT, INTS_OUT, TABLE_OUT)
def count_listed(hashes, first, last, listed, table, seen, out):  # type: ignore[no-untyped-def]
    """``out[0]``: words that are on a list, by their hashes; ``out[1]``: how many of the list there are.

    ``table`` has a power of two of places, many more than the list has words, so that most words meet nothing;
    it and ``seen``, with a place for each word of the list, must hold -1 when they are given.
    """
    size = len(table)
    mask = np.uint64(size - 1)
    for k in range(len(listed)):
        place = np.int64(listed[k] & mask)
        while table[place] >= 0:
            place = (place + 1) & (size - 1)
        table[place] = k
    for d in range(len(first)):
        count = 0
        distinct = 0
        for w in range(first[d], last[d]):
            h = hashes[w]
            place = np.int64(h & mask)
            while table[place] >= 0:
                k = table[place]
                if listed[k] == h:
                    count += 1
                    if seen[k] != d:
                        seen[k] = d
                        distinct += 1
                    break
                place = (place + 1) & (size - 1)
        out[0, d] = count
        out[1, d] = distinct
