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
from gristmill.kernels.utf8 import HIGHS, ONES, SEED, below, bytes_in, class_at, eight_at, finish, mix, width_at

_SPACE = np.uint16(Class.SPACE)
_LETTER = np.uint16(Class.LETTER)
_AFTER_SPACE = ONES * np.uint64(0x21)
_CASE = ONES * np.uint64(0x20)
_A = ONES * np.uint64(0x61)
_AFTER_Z = ONES * np.uint64(0x7B)


@helper
def unusual(x):  # type: ignore[no-untyped-def]
    """Marks at the lowest byte that is a space, a control or beyond ASCII, and perhaps at bytes above it."""
    return ((x - _AFTER_SPACE) | x) & HIGHS


@helper
def letter_marks(x):  # type: ignore[no-untyped-def]
    """Not 0 if there is an ASCII letter among eight bytes of ASCII."""
    folded = (x | _CASE) | HIGHS
    return (folded - _A) & ~(folded - _AFTER_Z) & HIGHS


@helper
def long_way(data, i, end, blocks, classes):  # type: ignore[no-untyped-def]
    """A word from ``i`` on, character by character.

    Returns where it ends, its hash and what is still to be mixed into it, its length, whether it has a letter, and
    the width of the white space behind it.
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
    while begin + 8 <= i:
        h = mix(h, eight_at(data, begin))
        begin += 8
    value = np.uint64(0)
    for k in range(i - begin):
        value |= np.uint64(data[begin + k]) << np.uint64(8 * k)
    return i, h, value, length, (seen & _LETTER) != 0, space


@helper
def split_document(data, i, end, blocks, classes, hashes, lengths, total):  # type: ignore[no-untyped-def]
    """The words of one document; they are stored from ``total`` on."""
    chars = 0
    longest = 0
    with_letter = 0
    while i < end:
        begin = i
        h = SEED
        value = np.uint64(0)
        letters = np.uint64(0)
        plain = False
        while i + 8 <= end:  # eight bytes at once, while they are visible ASCII
            value = eight_at(data, i)
            marks = unusual(value)
            if marks == 0:
                h = mix(h, value)
                letters |= letter_marks(value)
                i += 8
                continue
            mask = below(marks)
            value &= mask
            letters |= letter_marks(value)
            i += bytes_in(mask)
            plain = data[i] == 0x20 or data[i] == 0x0A
            break
        if plain:
            length = i - begin
            space = 1
        else:
            i, h, value, length, letter, space = long_way(data, begin, end, blocks, classes)
            letters = np.uint64(letter)
        if length:
            hashes[total] = finish(mix(h, value), i - begin)
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
