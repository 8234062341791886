"""Texts in Unicode's normal form C, without characters that are not shown.

A code point is held with its canonical combining class in the bits above it. The three steps are those of the Unicode
standard (annex 15): decompose, put marks into order, compose.
"""

from __future__ import annotations

import numpy as np

from gristmill.kernels.compile import helper, kernel
from gristmill.kernels.folding_kernels import CODE, COMPOSES, RANK, RANKS
from gristmill.kernels.utf8 import code_at, put_character, width_at

_BAD = 0x110000
"""Added to a byte that is not UTF-8: it stays as it is."""
_S, _L, _V, _T = 0xAC00, 0x1100, 0x1161, 0x11A7
"""The first syllable, leading consonant and vowel of Hangul, and the one before the first final consonant."""
_LS, _VS, _TS = 19, 21, 28
_SHORT_RUN = 24


@helper
def decompose(data, i, end, folds, decompositions, codes):
    """Write the code points of a text to ``codes``, fully decomposed. Return their number."""
    blocks, index, places, flat = decompositions
    count = 0
    while i < end:
        byte = data[i]
        if byte < 0x80:
            codes[count] = byte
            count += 1
            i += 1
            continue
        width = width_at(data, i, end)
        if width == 1:
            codes[count] = np.uint32(_BAD + byte)
            count += 1
            i += 1
            continue
        code = code_at(data, i, width)
        i += width
        folded = folds[code]
        if folded == 0:
            continue
        if _S <= code < _S + _LS * _VS * _TS:
            place = code - _S
            codes[count] = np.uint32(_L + place // (_VS * _TS))
            codes[count + 1] = np.uint32(_V + place % (_VS * _TS) // _TS)
            count += 2
            if place % _TS:
                codes[count] = np.uint32(_T + place % _TS)
                count += 1
            continue
        entry = index[np.int64(blocks[code >> 8]) << 8 | code & 0xFF]
        if entry == 0:
            codes[count] = np.uint32(code) | folded & RANKS
            count += 1
            continue
        for k in range(places[entry - 1], places[entry]):
            codes[count] = np.uint32(flat[k]) | folds[flat[k]] & RANKS
            count += 1
    return count


@helper
def put_in_order(codes, count, spare):
    """Sort each run of marks by combining class; those of equal class keep their order."""
    i = 0
    while i < count:
        if not codes[i] & RANKS:
            i += 1
            continue
        stop = i + 1
        while stop < count and codes[stop] & RANKS:
            stop += 1
        if stop - i <= _SHORT_RUN:
            for k in range(i + 1, stop):
                value = codes[k]
                j = k
                while j > i and codes[j - 1] & RANKS > value & RANKS:
                    codes[j] = codes[j - 1]
                    j -= 1
                codes[j] = value
        else:  # thousands of marks on one letter: the time must not grow with their square
            put_at = 0
            for rank in range(1, 256):
                for k in range(i, stop):
                    if codes[k] >> RANK == rank:
                        spare[put_at] = codes[k]
                        put_at += 1
            for k in range(stop - i):
                codes[i + k] = spare[k]
        i = stop


@helper
def composed(first, second, compositions):
    """Return the code point that two others make; -1 if there is none."""
    if _L <= first < _L + _LS and _V <= second < _V + _VS:
        return _S + ((first - _L) * _VS + second - _V) * _TS
    if _S <= first < _S + _LS * _VS * _TS and (first - _S) % _TS == 0 and _T < second < _T + _TS:
        return first + second - _T
    keys, composites = compositions
    wanted = np.uint64(first) << np.uint64(21) | np.uint64(second)
    low = 0
    high = len(keys)
    while low < high:
        middle = (low + high) >> 1
        if keys[middle] < wanted:
            low = middle + 1
        else:
            high = middle
    return np.int64(composites[low]) if low < len(keys) and keys[low] == wanted else np.int64(-1)


@helper
def compose(codes, count, folds, compositions):
    """Compose in place. Return the number of code points that are left."""
    starter = -1
    last = np.uint32(0)
    have = 0
    for k in range(count):
        value = codes[k]
        rank = value & RANKS
        code = np.int64(value & CODE)
        if starter >= 0 and code < _BAD and folds[code] & COMPOSES and (have == starter + 1 or last < rank):
            made = composed(np.int64(codes[starter] & CODE), code, compositions)
            if made >= 0:
                codes[starter] = np.uint32(made)
                continue
        if rank == 0:
            starter = have
        last = rank
        codes[have] = value
        have += 1
    return have


@kernel("texts lengths (bytes classes ints lengths) (hashes lengths) (out_lengths out_lengths) out_bytes out_ints")
def normalize_texts(texts, folds, decompositions, compositions, work, out, edges):
    """Write each text in normal form C, without the code points that are 0 in ``folds``.

    The two arrays of ``work`` have two code points for each byte of the longest text, ``out`` has three bytes for each
    byte. Text ``d`` goes from ``edges[d]`` to the next edge.
    """
    data, starts, ends = texts
    codes, spare = work
    at = 0
    edges[0] = 0
    for d in range(len(starts)):
        count = decompose(data, starts[d], ends[d], folds, decompositions, codes)
        put_in_order(codes, count, spare)
        count = compose(codes, count, folds, compositions)
        for k in range(count):
            code = np.int64(codes[k] & CODE)
            if code >= _BAD:
                out[at] = np.uint8(code - _BAD)
                at += 1
            else:
                at = put_character(out, at, code)
        edges[d + 1] = at
