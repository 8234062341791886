"""Characters by class, hash signs and ellipses."""

from __future__ import annotations

import numpy as np

from gristmill.kernels.compile import BYTES, CLASSES, HASHES, HASHES_OUT, INTS, INTS_OUT, STAGE_1, TABLE_OUT, kernel
from gristmill.kernels.unicode import COUNTED
from gristmill.kernels.utf8 import class_at, width_at
from gristmill.kernels.vector import WIDTH, beyond_ascii_mask, first_bit, symbol_mask

FULL = 255
"""How many characters fit into counters of eight bits."""


@kernel(BYTES, INTS, INTS, STAGE_1, CLASSES, HASHES, HASHES_OUT, TABLE_OUT)
def count_classes(data, starts, ends, blocks, classes, spread, ascii_, out):  # type: ignore[no-untyped-def]
    """``out[0]``: characters; ``out[1 + k]``: those with class bit ``k``.

    ``spread`` has for each combination of classes a number with a one in the byte of each of them: sums of such
    numbers count all classes at once, up to `FULL` characters. ``ascii_`` is room for 128 of them.
    """
    for c in range(128):
        ascii_[c] = spread[classes[(np.int64(blocks[0]) << 8) | c] & 0xFF]
    for d in range(len(starts)):
        i = starts[d]
        end = ends[d]
        chars = 0
        while i < end:
            sums = np.uint64(0)
            room = FULL
            while room > 0 and i < end:
                c = data[i]
                if c < 0x80:
                    sums += ascii_[c]
                    i += 1
                else:
                    width = width_at(data, i, end)
                    sums += spread[class_at(data, i, width, blocks, classes) & 0xFF]
                    i += width
                room -= 1
            chars += FULL - room
            for k in range(COUNTED):
                out[1 + k, d] += np.int64((sums >> np.uint64(8 * k)) & np.uint64(0xFF))
        out[0, d] = chars


@kernel(BYTES, INTS, INTS, INTS_OUT)
def count_chars(data, starts, ends, out):  # type: ignore[no-untyped-def]
    """``out``: characters."""
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


@kernel(BYTES, INTS, INTS, TABLE_OUT)
def count_symbols(data, starts, ends, out):  # type: ignore[no-untyped-def]
    """``out[0]``: hash signs; ``out[1]``: ellipses, which are ``...``, U+2026 and U+22EF."""
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
