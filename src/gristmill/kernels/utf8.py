"""Helpers of several kernels: characters and their classes in UTF-8, hashes of bytes, searches.

Bytes that are not UTF-8 are never read past. Each of them counts as one character of no class.
"""

from __future__ import annotations

from typing import Any

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
LAST_CODE = 0x10FFFF


@helper
def width_at(data, i, end):
    """Return the number of bytes of the character that begins at ``i``."""
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
def code_at(data, i, width):
    """Return the code point of the character of ``width`` bytes at ``i``; `NO_CHARACTER` for a byte beyond ASCII."""
    lead = np.int64(data[i])
    if width == 1:
        return lead if lead < 0x80 else np.int64(NO_CHARACTER)
    if width == 2:
        return (lead & 0x1F) << 6 | np.int64(data[i + 1]) & 0x3F
    if width == 3:
        return (lead & 0x0F) << 12 | (np.int64(data[i + 1]) & 0x3F) << 6 | np.int64(data[i + 2]) & 0x3F
    code = (lead & 0x07) << 18 | (np.int64(data[i + 1]) & 0x3F) << 12
    code |= (np.int64(data[i + 2]) & 0x3F) << 6 | np.int64(data[i + 3]) & 0x3F
    return min(code, np.int64(LAST_CODE))


@helper
def class_at(data, i, width, tables):
    """Return the class bits of the character of ``width`` bytes at ``i``."""
    blocks, classes = tables
    code = code_at(data, i, width)
    return classes[(np.int64(blocks[code >> 8]) << 8) | (code & 0xFF)]


@helper
def start_before(data, i, start):
    """Return where the character begins whose last byte is before ``i``."""
    j = i - 1
    while j > start and i - j < 4 and data[j] & 0xC0 == 0x80:
        j -= 1
    # Continuation bytes without a lead are not UTF-8: each is a character.
    return j if j + width_at(data, j, i) == i else i - 1


@helper
def put_character(out, at, code):
    """Write a code point as UTF-8. Return where the next one goes."""
    if code < 0x80:
        out[at] = np.uint8(code)
        return at + 1
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
def mix(h, value):
    h = (h ^ value) * M1
    return h ^ (h >> np.uint64(32))


@helper
def finish(h, length):
    h = (h + np.uint64(length)) * M2
    return h ^ (h >> np.uint64(29))


@helper
def tail_at(data, i, count):
    """Return up to eight bytes from ``i`` on as one number, the first in its lowest byte."""
    if i + 8 <= len(data) and count < 8:
        return eight_at(data, i) & ((np.uint64(1) << np.uint64(8 * count)) - np.uint64(1))
    value = np.uint64(0)
    for k in range(count):
        value |= np.uint64(data[i + k]) << np.uint64(8 * k)
    return value


def finder(mask_at: Any, is_wanted: Any) -> Any:
    """Return a helper that finds the first wanted byte from ``i`` on, or ``end``.

    ``mask_at`` is a mask of `vector`; ``is_wanted`` tests a single byte near the end of the array.
    """
    is_wanted = helper(is_wanted)

    @helper
    def find(data, i, end):
        last = data.size - WIDTH
        while i < end:
            if i <= last:
                mask = mask_at(data, i)
                if mask:
                    return min(i + first_bit(mask), end)
                i += WIDTH
            elif is_wanted(data[i]):
                return i
            else:
                i += 1
        return end

    return find


find_newline = finder(line_feed_mask, lambda byte: byte == 0x0A)


@helper
def same_bytes(data, a, b, length):
    for k in range(length):  # noqa: SIM110  # Numba has no all() of a generator
        if data[a + k] != data[b + k]:
            return False
    return True


@helper
def count_chars(data, start, end):
    """Return the number of characters in valid UTF-8: of bytes that do not continue one."""
    count = 0
    for i in range(start, end):
        count += (data[i] & 0xC0) != 0x80
    return count
