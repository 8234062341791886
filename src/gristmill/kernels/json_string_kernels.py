"""The kernels of `json_lines` for strings. Importing this module loads Numba."""

from __future__ import annotations

import numpy as np

from gristmill.kernels.compile import helper, kernel
from gristmill.kernels.utf8 import finder, put_character
from gristmill.kernels.vector import WIDTH, backslash_mask, copy_bytes, escape_mask, first_bit, string_mask

_QUOTE, _BACKSLASH = 34, 92


@helper
def _hex4(data, i, end):
    """Return the number of four hexadecimal digits, or -1."""
    if i + 4 > end:
        return -1
    value = 0
    for j in range(i, i + 4):
        c = np.int64(data[j])
        if 48 <= c <= 57:
            value = value * 16 + c - 48
        elif 97 <= c <= 102:
            value = value * 16 + c - 87
        elif 65 <= c <= 70:
            value = value * 16 + c - 55
        else:
            return -1
    return value


@helper
def _escape_end(data, i, end):
    """Return the end of the escape whose backslash is at ``i``, a pair of surrogates as one; -1 if it is invalid."""
    if i + 1 >= end:
        return -1
    c = data[i + 1]
    if c == 117:  # u
        code = _hex4(data, i + 2, end)
        if code < 0 or 0xDC00 <= code <= 0xDFFF:
            return -1
        if code < 0xD800 or code > 0xDBFF:
            return i + 6
        if i + 8 > end or data[i + 6] != _BACKSLASH or data[i + 7] != 117:
            return -1
        low = _hex4(data, i + 8, end)
        return i + 12 if 0xDC00 <= low <= 0xDFFF else -1
    if c in (_QUOTE, _BACKSLASH, 47, 98, 102, 110, 114, 116):
        return i + 2
    return -1


@helper
def _beyond_ascii_end(data, i, end):
    """Return the end of the characters beyond ASCII that begin at ``i``; -1 if they are not UTF-8."""
    while i < end:
        c = data[i]
        if c < 128:
            return i
        low, high = 0x80, 0xBF
        if c < 0xC2 or c > 0xF4:
            return -1
        if c < 0xE0:
            more = 1
        elif c < 0xF0:
            more = 2
            if c == 0xE0:
                low = 0xA0
            elif c == 0xED:
                high = 0x9F
        else:
            more = 3
            if c == 0xF0:
                low = 0x90
            elif c == 0xF4:
                high = 0x8F
        if i + more >= end or data[i + 1] < low or data[i + 1] > high:
            return -1
        for j in range(i + 2, i + 1 + more):
            if data[j] < 0x80 or data[j] > 0xBF:
                return -1
        i += more + 1
    return i


@helper
def string_end(data, i, end):
    """Return the place after the quote that closes the string whose first byte is at ``i``; -1 if there is none."""
    last = data.size - WIDTH
    while i < end:
        if i <= last:
            mask = string_mask(data, i)
            if mask == 0:
                i += WIDTH
                continue
            i += first_bit(mask)
            if i >= end:
                return -1
        c = data[i]
        if c == _QUOTE:
            return i + 1
        if c == _BACKSLASH:
            i = _escape_end(data, i, end)
        elif c < 32:
            return -1
        elif c >= 128:
            i = _beyond_ascii_end(data, i, end)
        else:
            i += 1
        if i < 0:
            return -1
    return -1


_next_backslash = finder(backslash_mask, lambda byte: byte == _BACKSLASH)
_next_to_escape = finder(escape_mask, lambda byte: byte in (_QUOTE, _BACKSLASH) or byte < 32)


@kernel("texts out_bytes out_ints")
def unescape(texts, out, edges):
    """See `json_lines.unescape`. ``out`` is as long as all strings with their escapes."""
    data, starts, ends = texts
    at = 0
    for row in range(starts.size):
        edges[row] = at
        i, end = starts[row], ends[row]
        while i < end:
            stop = _next_backslash(data, i, end)
            copy_bytes(out, at, data, i, stop - i)
            at += stop - i
            i = stop
            if i >= end:
                break
            c = np.int64(data[i + 1])
            i += 2
            if c == 117:
                code = _hex4(data, i, end)
                i += 4
                if 0xD800 <= code <= 0xDBFF:
                    code = 0x10000 + ((code - 0xD800) << 10) + (_hex4(data, i + 2, end) - 0xDC00)
                    i += 6
                at = put_character(out, at, code)
                continue
            if c == 110:
                c = 10
            elif c == 116:
                c = 9
            elif c == 114:
                c = 13
            elif c == 98:
                c = 8
            elif c == 102:
                c = 12
            out[at] = c
            at += 1
    edges[starts.size] = at


@helper
def _short_escape(c):
    """Return the letter of a control character's escape; 0 if it has none."""
    if c == 10:
        return 110
    if c == 9:
        return 116
    if c == 13:
        return 114
    if c == 8:
        return 98
    if c == 12:
        return 102
    return 0


@kernel("texts")
def escaped_size(texts):
    """Return the number of bytes of texts as JSON strings."""
    data, starts, ends = texts
    size = 2 * starts.size
    for row in range(starts.size):
        i, end = starts[row], ends[row]
        size += end - i
        while True:
            i = _next_to_escape(data, i, end)
            if i >= end:
                break
            size += 1 if data[i] >= 32 or _short_escape(data[i]) else 5
            i += 1
    return size


@kernel("texts out_bytes out_ints")
def escape(texts, out, edges):
    """See `json_lines.escape`. ``out`` has `escaped_size` bytes."""
    data, starts, ends = texts
    at = 0
    for row in range(starts.size):
        edges[row] = at
        out[at] = _QUOTE
        at += 1
        i, end = starts[row], ends[row]
        while True:
            stop = _next_to_escape(data, i, end)
            copy_bytes(out, at, data, i, stop - i)
            at += stop - i
            if stop >= end:
                break
            c = np.int64(data[stop])
            out[at] = _BACKSLASH
            short = c if c >= 32 else _short_escape(c)
            if short:
                out[at + 1] = short
                at += 2
            else:
                out[at + 1] = 117
                out[at + 2] = 48
                out[at + 3] = 48
                out[at + 4] = 48 + (c >> 4)
                low = c & 15
                out[at + 5] = 48 + low if low < 10 else 87 + low
                at += 6
            i = stop + 1
        out[at] = _QUOTE
        at += 1
    edges[starts.size] = at
