"""Words: runs of characters between white space, in any script."""

from __future__ import annotations

import numpy as np

from gristmill.kernels.compile import helper, kernel
from gristmill.kernels.unicode import Class
from gristmill.kernels.utf8 import HIGHS, ONES, SEED, class_at, finish, mix, tail_at, width_at
from gristmill.kernels.vector import eight_at, visible_run

_SPACE = np.uint16(Class.SPACE)
_LETTER = np.uint16(Class.LETTER)
_ALL = np.uint64(0xFFFFFFFFFFFFFFFF)
_CASE = ONES * np.uint64(0x20)
_A = ONES * np.uint64(0x61)
_AFTER_Z = ONES * np.uint64(0x7B)


@helper
def letter_marks(x):
    """Return a number that is not 0 if one of eight bytes of ASCII is a letter."""
    folded = (x | _CASE) | HIGHS
    return (folded - _A) & ~(folded - _AFTER_Z) & HIGHS


@helper
def first_bytes(value, count):
    """Return the lowest ``count`` bytes of a number: at most all eight, at least none."""
    # Two shifts, since the result of one by 64 bits is undefined.
    bits = np.uint64(4 * (8 - min(max(count, 0), 8)))
    return value & (_ALL >> bits >> bits)


@helper
def read_word(data, i, end, tables):
    """Read a word from ``i`` on, character by character.

    Return where it ends, its hash, its length, whether it has a letter, and the width of the white space after it.
    """
    begin = i
    length = 0
    seen = np.uint16(0)
    space = 0
    while i < end:
        width = width_at(data, i, end)
        bits = class_at(data, i, width, tables)
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
def split_document(data, i, end, tables, words, total):
    """Store the words of one document from ``total`` on.

    Return the new total, the characters in words, the longest word and the number of words with a letter.
    """
    hashes, lengths = words
    chars = 0
    longest = 0
    with_letter = 0
    last = end - 16
    while i < end:
        begin = i
        h = SEED
        letters = np.uint64(0)
        plain = False
        while i <= last:  # sixteen bytes at once, while they are visible ASCII: most words are shorter
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
            i, h, length, letter, space = read_word(data, begin, end, tables)
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


@kernel("texts tables int64 (out_hashes out_lengths) out_ints_rows out_ints")
def split_words(texts, tables, begin, words, out, first):
    """Write to ``out`` for each document: words, characters in words, the longest word, words with a letter.

    ``words`` are the hashes and the lengths in characters of all words. Those of document ``d`` begin at ``first[d]``;
    ``first[begin]`` must be set. Documents from ``begin`` on are done as long as the space is sure to suffice. Return
    the first document that is not done.
    """
    data, starts, ends = texts
    total = first[begin]
    for d in range(begin, len(starts)):
        if total + (ends[d] - starts[d]) // 2 + 1 > len(words[0]):
            return d
        # A function of its own: the loop over words is slow where the arrays may be replaced.
        total, out[1, d], out[2, d], out[3, d] = split_document(data, starts[d], ends[d], tables, words, total)
        out[0, d] = total - first[d]
        first[d + 1] = total
    return len(starts)


@kernel("(hashes ints ints) hashes ints out_ints_rows")
def count_few_listed(words, listed, table, out):
    """Do the same as `count_listed` for at most 64 listed words, each with a place of its own in ``table``.

    The place is given by the hash's lowest bits. At all other places the table has 0. The processor cannot predict
    which words are listed, so no branch depends on it.
    """
    hashes, first, last = words
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


@kernel("(hashes ints ints) hashes out_ints out_ints out_ints_rows")
def count_listed(words, listed, table, seen, out):
    """Count the words of a list by their hashes: all to ``out[0]``, different ones to ``out[1]``.

    The length of ``table`` is a power of two, far above the number of listed words, so that most words find an empty
    place. It and ``seen``, which is as long as the list, must hold -1 before the call.
    """
    hashes, first, last = words
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
