"""What kernels share: code points and their classes in UTF-8, and hashes of bytes.

Bytes that are no UTF-8 are never read past and count as one character each, of no class.
"""

from __future__ import annotations

import numpy as np

from gristmill.kernels.compile import helper

M1 = np.uint64(0x9E3779B97F4A7C15)
M2 = np.uint64(0xD6E8FEB86659FD93)
SEED = np.uint64(0x2545F4914F6CDD1D)
ONES = np.uint64(0x0101010101010101)
HIGHS = np.uint64(0x8080808080808080)
NEWLINES = np.uint64(0x0A0A0A0A0A0A0A0A)
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
def eight_at(data, i):  # type: ignore[no-untyped-def]
    """The eight bytes from ``i`` as one number, the first in its lowest byte."""
    # Unsigned indices spare the test for negative ones, and the compiler makes one load of this.
    j = np.uint64(i)
    low = np.uint64(data[j]) | np.uint64(data[j + np.uint64(1)]) << np.uint64(8)
    low |= np.uint64(data[j + np.uint64(2)]) << np.uint64(16) | np.uint64(data[j + np.uint64(3)]) << np.uint64(24)
    high = np.uint64(data[j + np.uint64(4)]) | np.uint64(data[j + np.uint64(5)]) << np.uint64(8)
    high |= np.uint64(data[j + np.uint64(6)]) << np.uint64(16) | np.uint64(data[j + np.uint64(7)]) << np.uint64(24)
    return low | high << np.uint64(32)


@helper
def zero_bytes(x):  # type: ignore[no-untyped-def]
    """The high bit of the lowest byte that is 0, and perhaps of bytes above it; 0 if there is none."""
    return (x - ONES) & ~x & HIGHS


@helper
def below(marks):  # type: ignore[no-untyped-def]
    """A mask of the bytes below the lowest whose high bit is set in ``marks``, which is not 0."""
    return ((marks & (~marks + np.uint64(1))) >> np.uint64(7)) - np.uint64(1)


@helper
def bytes_in(mask):  # type: ignore[no-untyped-def]
    """How many bytes a mask from `below` is long."""
    return np.int64(((mask & ONES) * ONES) >> np.uint64(56))


@helper
def find_newline(data, i, end):  # type: ignore[no-untyped-def]
    """Where the next newline is from ``i`` on; ``end`` if there is none."""
    while i + 8 <= end:
        marks = zero_bytes(eight_at(data, i) ^ NEWLINES)
        if marks:
            return i + bytes_in(below(marks))
        i += 8
    while i < end and data[i] != 0x0A:
        i += 1
    return i


@helper
def hash_bytes(data, start, end):  # type: ignore[no-untyped-def]
    h = SEED
    i = start
    while i + 8 <= end:
        h = mix(h, eight_at(data, i))
        i += 8
    value = np.uint64(0)
    while i < end:
        value = value << np.uint64(8) | np.uint64(data[i])
        i += 1
    return finish(mix(h, value), end - start)


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
