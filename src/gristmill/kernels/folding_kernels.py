"""Folded texts: each character by a table, each run of white space as one space."""

from __future__ import annotations

import numpy as np

from gristmill.kernels.compile import helper, kernel
from gristmill.kernels.overlap_kernels import SPACE
from gristmill.kernels.utf8 import HIGHS, ONES, code_at, put_character, width_at
from gristmill.kernels.vector import eight_at

CODE = np.uint32((1 << 21) - 1)
RANK = np.uint32(21)
RANKS = np.uint32(0xFF << 21)
"""The canonical combining class of a mark, in the bits from ``RANK`` on."""
COMPOSES = np.uint32(1 << 29)
"""Set for code points that may not be in normal form C after others."""
_LETTER = np.uint32(1 << 9)
"""The bits above the code point, if it is itself or its lower case after any other character."""
_SPACES = ONES * np.uint64(0x20)
_FROM_A = ONES * np.uint64(0x80 - ord("A"))
_ABOVE_Z = ONES * np.uint64(0x80 - ord("Z") - 1)


@helper
def is_plain(eight):
    """Return whether eight bytes are ASCII without controls and without two spaces in a row.

    For a few that are it is False.
    """
    controls = (eight - _SPACES) & ~eight
    others = eight ^ _SPACES
    spaces = (others - ONES) & ~others & HIGHS
    return ((eight | controls) & HIGHS | (spaces & (spaces << np.uint64(8)))) == 0


@helper
def lower_ascii(eight):
    """Return eight bytes of ASCII in lower case."""
    from_a = eight + _FROM_A
    above_z = eight + _ABOVE_Z
    return eight | ((from_a & ~above_z & HIGHS) >> np.uint64(2))


@helper
def put_eight(out, at, eight):
    for k in range(8):
        out[at + k] = np.uint8(eight >> np.uint64(8 * k))


@kernel("texts lengths int64 out_bytes out_ints")
def fold_texts(texts, folds, is_normal, out, edges):
    """Write each text with its characters replaced by ``folds``, and one space for each run of white space.

    ``folds`` is `folding.case_folds`. No space is left at either end. ``out`` has three bytes for each two of the
    input, since some letters are longer in lower case. Text ``d`` goes from ``edges[2 * d]`` to ``edges[2 * d + 1]``.
    A byte that is not UTF-8 stays.

    A text that may not be in normal form C gets the end -1, unless all texts are known to be (``is_normal``). Return
    the number of such texts.
    """
    data, starts, ends = texts
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
                at = put_character(out, at, np.int64(folded & CODE))
                marked = at
                continue
            if byte >= 0x80 and width == 1:
                out[at] = byte
                at += 1
            else:
                at = put_character(out, at, np.int64(folded & CODE))
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
