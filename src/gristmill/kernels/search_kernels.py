"""Phrases and addresses in texts."""

from __future__ import annotations

import numpy as np

from gristmill.kernels.compile import helper, kernel
from gristmill.kernels.features import PHRASE_BITS, PREFIX, SUFFIX
from gristmill.kernels.line_kernels import first_visible
from gristmill.kernels.utf8 import M1, find_newline


@helper
def lower(c):
    return c | 0x20 if 0x41 <= c <= 0x5A else c


@helper
def is_hex(c):
    return 0x30 <= c <= 0x39 or 0x61 <= (c | 0x20) <= 0x66


@helper
def four_at(data, i):
    """Return a hash of four bytes that is the same for letters in either case."""
    j = np.uint64(i)
    value = np.uint32(data[j]) | np.uint32(data[j + np.uint64(1)]) << np.uint32(8)
    value |= np.uint32(data[j + np.uint64(2)]) << np.uint32(16) | np.uint32(data[j + np.uint64(3)]) << np.uint32(24)
    return (np.uint64(value | np.uint32(0x20202020)) * M1) >> np.uint64(64 - PHRASE_BITS)


@helper
def starts_here(data, i, end, phrase, begin, stop):
    """Return whether ``phrase[begin:stop]``, which is in lower case, is at ``i``, in any case."""
    if i + (stop - begin) > end:
        return False
    for k in range(stop - begin):  # noqa: SIM110  # Numba has no all() of a generator
        if lower(data[i + k]) != phrase[begin + k]:
            return False
    return True


@kernel("texts bytes int64 out_flags")
def find_bytes(texts, wanted, position, out):
    """Write whether each document begins with, ends with, or contains the bytes ``wanted``."""
    data, starts, ends = texts
    length = len(wanted)
    for d in range(len(starts)):
        i = starts[d]
        stop = ends[d] - length
        if position == SUFFIX:
            i = max(i, stop)
        elif position == PREFIX:
            stop = min(i, stop)
        out[d] = False
        while i <= stop:
            k = 0
            while k < length and data[i + k] == wanted[k]:
                k += 1
            if k == length:
                out[d] = True
                break
            i += 1


@kernel("texts bytes bytes out_ints_rows")
def find_urls(texts, url_bytes, wanted, out):
    """Write characters in addresses to ``out[0]``, addresses that contain ``wanted`` in any case to ``out[1]``.

    An address is ``http://`` or ``https://`` and the longest run after it of bytes for which ``url_bytes`` is 1,
    or that are a per cent sign and two hexadecimal digits.
    """
    data, starts, ends = texts
    for d in range(len(starts)):
        i = starts[d]
        end = ends[d]
        chars = 0
        hits = 0
        while i + 7 < end:
            if data[i] != 0x68:  # h
                i += 1
                continue
            if data[i + 1] != 0x74 or data[i + 2] != 0x74 or data[i + 3] != 0x70:
                i += 1
                continue
            body = i + 4
            if data[body] == 0x73:
                body += 1
            if body + 2 >= end or data[body] != 0x3A or data[body + 1] != 0x2F or data[body + 2] != 0x2F:
                i += 1
                continue
            body += 3
            j = body
            while j < end:
                if url_bytes[data[j]]:
                    j += 1
                elif data[j] == 0x25 and j + 2 < end and is_hex(data[j + 1]) and is_hex(data[j + 2]):
                    j += 3
                else:
                    break
            if j == body:
                i += 1
                continue
            chars += j - i
            for k in range(i, j):
                if starts_here(data, k, j, wanted, 0, len(wanted)):
                    hits += 1
                    break
            i = j
        out[0, d] = chars
        out[1, d] = hits


@kernel("texts tables bytes ints out_bytes out_ints_rows")
def find_phrases(texts, tables, phrases, edges, begins, out):
    """Count paragraphs that contain a phrase, in any case of ASCII letters.

    Phrase ``k`` is ``phrases[edges[k]:edges[k + 1]]``, in lower case and at least four bytes long. ``out``:
    paragraphs; hits, which are paragraphs with a phrase; hits before the first other paragraph; hits after the last
    other one. ``begins`` has 2 ** `PHRASE_BITS` places and must hold zeros before the call.
    """
    data, starts, ends = texts
    for k in range(len(edges) - 1):
        begins[four_at(phrases, edges[k])] = 1
    for d in range(len(starts)):
        i = starts[d]
        end = ends[d]
        parts = 0
        hits = 0
        leading = 0
        trailing = 0
        open_ = False
        hit = False
        while i < end:
            begin = i
            i = find_newline(data, i, end)
            blank = first_visible(data, begin, i, tables) == i
            if not blank:
                if not open_:
                    open_ = True
                    hit = False
                    parts += 1
                for j in range(begin, i - 3):
                    if begins[four_at(data, j)]:
                        for k in range(len(edges) - 1):
                            if starts_here(data, j, i, phrases, edges[k], edges[k + 1]):
                                hit = True
            if open_ and (blank or i >= end - 1):
                # The paragraph ends here, or what is left is one newline at most.
                open_ = False
                if hit:
                    hits += 1
                    trailing += 1
                    if hits == parts:
                        leading = hits
                else:
                    trailing = 0
            i += 1
        out[0, d] = parts
        out[1, d] = hits
        out[2, d] = leading
        out[3, d] = trailing
