"""Counts of characters: all, by class, by a table of code points; hash signs and ellipses."""

from __future__ import annotations

import numpy as np

from gristmill.kernels.compile import kernel
from gristmill.kernels.unicode import COUNTED
from gristmill.kernels.utf8 import class_at, code_at, width_at
from gristmill.kernels.vector import WIDTH, beyond_ascii_mask, first_bit, symbol_mask

FULL = 255
"""The number of characters that fit into counters of eight bits."""


@kernel("texts tables hashes out_hashes out_ints_rows")
def count_classes(texts, tables, spread, ascii_, out):
    """Write the number of characters to ``out[0]``, and of those with class bit ``k`` to ``out[1 + k]``.

    ``spread`` has for each combination of classes a number with a one in the byte of each class. Sums of such numbers
    count all classes at once, up to `FULL` characters. ``ascii_`` is space for 128 of them.
    """
    data, starts, ends = texts
    blocks, classes = tables
    for c in range(128):
        ascii_[c] = spread[classes[(np.int64(blocks[0]) << 8) | c] & 0xFF]
    for d in range(len(starts)):
        i = starts[d]
        end = ends[d]
        chars = 0
        while i < end:
            sums = np.uint64(0)
            left = FULL
            while left > 0 and i < end:
                c = data[i]
                if c < 0x80:
                    sums += ascii_[c]
                    i += 1
                else:
                    width = width_at(data, i, end)
                    sums += spread[class_at(data, i, width, tables) & 0xFF]
                    i += width
                left -= 1
            chars += FULL - left
            for k in range(COUNTED):
                out[1 + k, d] += np.int64((sums >> np.uint64(8 * k)) & np.uint64(0xFF))
        out[0, d] = chars


@kernel("texts bytes out_ints_rows")
def count_tabled(texts, table, out):
    """Write the number of characters to ``out[0]``, and of those for which the table has 1 to ``out[1]``."""
    data, starts, ends = texts
    for d in range(len(starts)):
        i = starts[d]
        end = ends[d]
        chars = 0
        inside = 0
        while i < end:
            chars += 1
            if data[i] < 0x80:
                inside += table[data[i]]
                i += 1
            else:
                width = width_at(data, i, end)
                inside += table[code_at(data, i, width)]
                i += width
        out[0, d] = chars
        out[1, d] = inside


@kernel("texts out_ints")
def count_chars(texts, out):
    """Write the number of characters to ``out``."""
    data, starts, ends = texts
    for d in range(len(starts)):
        i = starts[d]
        end = ends[d]
        last = end - WIDTH
        chars = 0
        while i < end:
            if i <= last:
                mask = beyond_ascii_mask(data, i)
                if mask == 0:
                    chars += WIDTH
                    i += WIDTH
                    continue
                chars += first_bit(mask)
                i += first_bit(mask)
            i += width_at(data, i, end) if data[i] >= 0x80 else 1
            chars += 1
            while i < end and data[i] >= 0x80:  # they come in runs
                i += width_at(data, i, end)
                chars += 1
        out[d] = chars


@kernel("texts out_ints_rows")
def count_symbols(texts, out):
    """Write the number of hash signs to ``out[0]``, and of ellipses (``...``, U+2026, U+22EF) to ``out[1]``."""
    data, starts, ends = texts
    for d in range(len(starts)):
        i = starts[d]
        end = ends[d]
        last = end - WIDTH - 1
        hashes = 0
        ellipses = 0
        while i < end:
            if i <= last:
                mask = symbol_mask(data, i)
                if mask == 0:
                    i += WIDTH
                    continue
                i += first_bit(mask)
            c = data[i]
            if c == 0x23:
                hashes += 1
            elif c == 0x2E:
                if i + 2 < end and data[i + 1] == 0x2E and data[i + 2] == 0x2E:
                    ellipses += 1
                    i += 2
            elif c == 0xE2 and i + 2 < end:
                second, third = data[i + 1], data[i + 2]
                if (second == 0x80 and third == 0xA6) or (second == 0x8B and third == 0xAF):
                    ellipses += 1
            i += 1
        out[0, d] = hashes
        out[1, d] = ellipses
