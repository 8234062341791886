"""Texts in another shape: each character by a table, white space as one space."""

from __future__ import annotations

import numpy as np

from gristmill.kernels.compile import BYTES, BYTES_OUT, INTS, INTS_OUT, LENGTHS, helper, kernel
from gristmill.kernels.overlap_kernels import SPACE, code_at
from gristmill.kernels.utf8 import HIGHS, ONES, eight_at, width_at

CODE = np.uint32((1 << 21) - 1)
RANK = np.uint32(21)
RANKS = np.uint32(0xFF << 21)
"""The canonical combining class of a mark, in the bits from ``RANK`` on."""
COMPOSES = np.uint32(1 << 29)
"""Set for code points that are not in normal form C, or may not be, after others."""
_LETTER = np.uint32(1 << 9)
"""What is above the code point for one that stands for itself, or its lower case, wherever it is."""
_SPACES = ONES * np.uint64(0x20)
_FROM_A = ONES * np.uint64(0x80 - ord("A"))
_ABOVE_Z = ONES * np.uint64(0x80 - ord("Z") - 1)


@helper
def put(out, at, code):  # type: ignore[no-untyped-def]
    """Write a code point beyond ASCII; returns where the next goes."""
    if code < 0x800:
        out[at] = np.uint8(0xC0 | code >> 6)
        out[at + 1] = np.uint8(0x80 | code & 0x3F)
        return at + 2
    if code < 0x10000:
        out[at] = np.uint8(0xE0 | code >> 12)
        out[at + 1] = np.uint8(0x80 | code >> 6 & 0x3F)
        out[at + 2] = np.uint8(0x80 | code & 0x3F)
        return at + 3
    out[at] = np.uint8(0xF0 | code >> 18)
    out[at + 1] = np.uint8(0x80 | code >> 12 & 0x3F)
    out[at + 2] = np.uint8(0x80 | code >> 6 & 0x3F)
    out[at + 3] = np.uint8(0x80 | code & 0x3F)
    return at + 4


@helper
def is_plain(eight):  # type: ignore[no-untyped-def]
    """Whether eight bytes are ASCII without controls, with no two spaces side by side; a few that are it says not."""
    controls = (eight - _SPACES) & ~eight
    others = eight ^ _SPACES
    spaces = (others - ONES) & ~others & HIGHS
    return ((eight | controls) & HIGHS | (spaces & (spaces << np.uint64(8)))) == 0


@helper
def lower_ascii(eight):  # type: ignore[no-untyped-def]
    """Eight bytes of ASCII in lower case."""
    from_a = eight + _FROM_A
    above_z = eight + _ABOVE_Z
    return eight | ((from_a & ~above_z & HIGHS) >> np.uint64(2))


@helper
def put_eight(out, at, eight):  # type: ignore[no-untyped-def]
    for k in range(8):
        out[at + k] = np.uint8(eight >> np.uint64(8 * k))


@kernel(BYTES, INTS, INTS, LENGTHS, "int64", BYTES_OUT, INTS_OUT)
def fold_texts(data, starts, ends, folds, is_normal, out, edges):  # type: ignore[no-untyped-def]
    """Write each text with its characters as ``folds`` says, and with one space for each run of white space.

    ``folds`` is `folding.case_folds`. No space is left at either end. ``out`` has room for three bytes for each two,
    since some letters are longer in lower case; text ``d`` goes from ``edges[2 * d]`` to ``edges[2 * d + 1]``. A byte
    that is not UTF-8 stays.

    A text that may not be in normal form C ends before it begins, at -1, unless all texts are known to be
    (``is_normal``). Returns how many such texts there are.
    """
    at = 0
    left = 0
    for d in range(len(starts)):
        begin = at
        marked = -1
        rank = np.uint32(0)
        i = starts[d]
        end = ends[d]
        while i < end:
            if i + 8 <= end:
                eight = eight_at(data, i)
                if is_plain(eight) and (data[i] != 0x20 or (at > begin and out[at - 1] != 0x20)):
                    put_eight(out, at, lower_ascii(eight))
                    at += 8
                    i += 8
                    continue
            byte = data[i]
            width = 1
            if byte < 0x80:
                folded = folds[byte]
            else:
                width = width_at(data, i, end)
                folded = folds[code_at(data, i, width)]
            i += width
            if folded >> RANK != _LETTER:
                if folded & SPACE:
                    if at > begin and out[at - 1] != 0x20:
                        out[at] = 0x20
                        at += 1
                    continue
                if folded == 0:
                    continue
                if not is_normal and (folded & COMPOSES or (marked == at and folded & RANKS < rank)):
                    marked = -2
                    break
                rank = folded & RANKS
                at = put(out, at, np.int64(folded & CODE))
                marked = at
                continue
            code = np.int64(folded & CODE)
            if byte >= 0x80 and width == 1:
                out[at] = byte
                at += 1
            elif code < 0x80:
                out[at] = np.uint8(code)
                at += 1
            else:
                at = put(out, at, code)
        edges[2 * d] = begin
        if marked == -2:
            at = begin
            edges[2 * d + 1] = -1
            left += 1
            continue
        if at > begin and out[at - 1] == 0x20:
            at -= 1
        edges[2 * d + 1] = at
    return left
