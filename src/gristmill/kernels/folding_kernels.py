"""Texts in another shape: each character by a table, white space as one space."""

from __future__ import annotations

import numpy as np

from gristmill.kernels.compile import BYTES, BYTES_OUT, INTS, INTS_OUT, LENGTHS, helper, kernel
from gristmill.kernels.overlap_kernels import SPACE, code_at
from gristmill.kernels.utf8 import width_at

_CODE = np.uint32((1 << 21) - 1)


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


@kernel(BYTES, INTS, INTS, LENGTHS, BYTES_OUT, INTS_OUT)
def fold_texts(data, starts, ends, folds, out, edges):  # type: ignore[no-untyped-def]
    """Each text with its characters as ``folds`` says (see `overlap.folds`), and one space where there was white space.

    None is left at either end. ``out`` has room for three bytes for each two, since some letters are longer in lower
    case; text ``d`` goes from ``edges[d]`` to the next. A byte that is no UTF-8 stays.
    """
    at = 0
    edges[0] = 0
    for d in range(len(starts)):
        begin = at
        i = starts[d]
        end = ends[d]
        apart = False
        while i < end:
            byte = data[i]
            width = 1
            if byte < 0x80:
                folded = folds[byte]
            else:
                width = width_at(data, i, end)
                folded = folds[code_at(data, i, width)]
            if folded & SPACE:
                apart = at > begin
                i += width
                continue
            if apart:
                out[at] = 0x20
                at += 1
                apart = False
            code = np.int64(folded & _CODE)
            if byte >= 0x80 and width == 1:
                out[at] = byte
                at += 1
            elif code < 0x80:
                out[at] = np.uint8(code)
                at += 1
            else:
                at = put(out, at, code)
            i += width
        edges[d + 1] = at
