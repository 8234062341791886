"""What kernels share: code points and their classes in UTF-8, and hashes of bytes.

Bytes that are no UTF-8 are never read past and count as one character each, of no class.
"""

from __future__ import annotations

import numpy as np

from gristmill.kernels.compile import helper
from gristmill.kernels.vector import WIDTH, eight_at, first_bit, line_feed_mask

M1 = np.uint64(0x9E3779B97F4A7C15)
M2 = np.uint64(0xD6E8FEB86659FD93)
SEED = np.uint64(0x2545F4914F6CDD1D)
ONES = np.uint64(0x0101010101010101)
HIGHS = np.uint64(0x8080808080808080)
NO_CHARACTER = 0xFFFF
"""A code point that is never assigned: of no class."""


@helper
def width_at(data, i, end):  # type: ignore[no-untyped-def]
    """The number of bytes of the character that begins at ``i``."""
    lead = data[i]
    if lead < 0xC2 or lead > 0xF4:
        return 1
    width = 2 if lead < 0xE0 else 3 if lead < 0xF0 else 4
    if i + width > end:
        return 1
    for k in range(1, width):
        if data[i + k] & 0xC0 != 0x80:
            return 1
    return width


@helper
def class_at(data, i, width, blocks, classes):  # type: ignore[no-untyped-def]
    """The class bits of the character of ``width`` bytes at ``i``."""
    lead = np.int64(data[i])
    if width == 1:
        code = lead if lead < 0x80 else NO_CHARACTER
    elif width == 2:
        code = (lead & 0x1F) << 6 | np.int64(data[i + 1]) & 0x3F
    elif width == 3:
        code = (lead & 0x0F) << 12 | (np.int64(data[i + 1]) & 0x3F) << 6 | np.int64(data[i + 2]) & 0x3F
    else:
        code = (lead & 0x07) << 18 | (np.int64(data[i + 1]) & 0x3F) << 12
        code |= (np.int64(data[i + 2]) & 0x3F) << 6 | np.int64(data[i + 3]) & 0x3F
        if code > 0x10FFFF:
            code = NO_CHARACTER
    return classes[(np.int64(blocks[code >> 8]) << 8) | (code & 0xFF)]


@helper
def back(data, i, start):  # type: ignore[no-untyped-def]
    """Where the character begins whose last byte is before ``i``."""
    j = i - 1
    while j > start and i - j < 4 and data[j] & 0xC0 == 0x80:
        j -= 1
    # A run of continuation bytes without their lead is no UTF-8: one byte at a time.
    return j if j + width_at(data, j, i) == i else i - 1


@helper
def mix(h, value):  # type: ignore[no-untyped-def]
    h = (h ^ value) * M1
    return h ^ (h >> np.uint64(32))


@helper
def finish(h, length):  # type: ignore[no-untyped-def]
    h = (h + np.uint64(length)) * M2
    return h ^ (h >> np.uint64(29))


@helper
def below(marks):  # type: ignore[no-untyped-def]
    """A mask of the bytes below the lowest whose high bit is set in ``marks``, which is not 0."""
    return ((marks & (~marks + np.uint64(1))) >> np.uint64(7)) - np.uint64(1)


@helper
def tail_at(data, i, count):  # type: ignore[no-untyped-def]
    """Up to eight bytes from ``i`` as one number, the first in its lowest byte."""
    if i + 8 <= len(data) and count < 8:
        return eight_at(data, i) & ((np.uint64(1) << np.uint64(8 * count)) - np.uint64(1))
    value = np.uint64(0)
    for k in range(count):
        value |= np.uint64(data[i + k]) << np.uint64(8 * k)
    return value


@helper
def find_newline(data, i, end):  # type: ignore[no-untyped-def]
    """Where the next newline is from ``i`` on; ``end`` if there is none."""
    while i + WIDTH <= end:
        mask = line_feed_mask(data, i)
        if mask:
            return i + first_bit(mask)
        i += WIDTH
    while i < end and data[i] != 0x0A:
        i += 1
    return i


@helper
def same_bytes(data, a, b, length):  # type: ignore[no-untyped-def]
    for k in range(length):  # noqa: SIM110  # Numba has no all() of a generator
        if data[a + k] != data[b + k]:
            return False
    return True


@helper
def count_chars(data, start, end):  # type: ignore[no-untyped-def]
    """Characters in valid UTF-8: bytes that do not continue one."""
    count = 0
    for i in range(start, end):
        count += (data[i] & 0xC0) != 0x80
    return count
