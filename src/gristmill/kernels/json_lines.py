"""JSON objects, one per row, in one buffer: where the values of wanted keys stand, and what strings say.

Importing this loads Numba. The kernels do not judge: a line that is not plainly a valid object is `UNSURE`, and the
caller asks a full parser.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from gristmill.kernels.vector import (
    WIDTH,
    backslash_mask,
    copy_bytes,
    escape_mask,
    first_bit,
    line_feed_mask,
    string_mask,
)

FINE = 0
UNSURE = 1

MAX_DEPTH = 60
MAX_NUMBER_BYTES = 100

_QUOTE, _BACKSLASH, _COMMA, _COLON = 34, 92, 44, 58
_OPEN, _CLOSE, _OPEN_LIST, _CLOSE_LIST = 123, 125, 91, 93

Array = np.ndarray[Any, Any]

_jit = njit(cache=True, nogil=True)


@_jit
def _past_space(data, i, end):
    while i < end and (data[i] == 32 or data[i] == 9 or data[i] == 10 or data[i] == 13):
        i += 1
    return i


@_jit
def _hex4(data, i, end):
    """The number of four hexadecimal digits, or -1."""
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


@_jit
def _escape_end(data, i, end):
    """Behind the escape whose backslash is at ``i``, a pair of surrogates taken as one; -1 if it is none."""
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


@_jit
def _beyond_ascii_end(data, i, end):
    """Behind the characters beyond ASCII that begin at ``i``; -1 if they are not UTF-8."""
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


@_jit
def _string_end(data, i, end):
    """Behind the quote that closes the string whose first byte is at ``i``; -1 if there is none."""
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


@_jit
def _digits_end(data, i, end):
    while i < end and 48 <= data[i] <= 57:
        i += 1
    return i


@_jit
def _number_end(data, i, end):
    """Behind a number; -1 if it is none, or one that may be too large for a double."""
    start = i
    if data[i] == 45:
        i += 1
    digits = i
    i = _digits_end(data, i, end)
    if i == digits or (data[digits] == 48 and i > digits + 1):
        return -1
    if i < end and data[i] == 46:
        digits = i + 1
        i = _digits_end(data, digits, end)
        if i == digits:
            return -1
    if i < end and (data[i] == 101 or data[i] == 69):
        i += 1
        if i < end and (data[i] == 43 or data[i] == 45):
            i += 1
        digits = i
        i = _digits_end(data, i, end)
        if i == digits or i > digits + 2:
            return -1
    return i if i - start <= MAX_NUMBER_BYTES else -1


@_jit
def _scalar_end(data, i, end):
    c = data[i]
    if c == _QUOTE:
        return _string_end(data, i + 1, end)
    if c == 116:
        if i + 4 <= end and data[i + 1] == 114 and data[i + 2] == 117 and data[i + 3] == 101:
            return i + 4
        return -1
    if c == 110:
        if i + 4 <= end and data[i + 1] == 117 and data[i + 2] == 108 and data[i + 3] == 108:
            return i + 4
        return -1
    if c == 102:
        rest = i + 5 <= end and data[i + 1] == 97 and data[i + 2] == 108 and data[i + 3] == 115
        return i + 5 if rest and data[i + 4] == 101 else -1
    return _number_end(data, i, end)


_VALUE, _FIRST_VALUE, _FIRST_KEY, _KEY, _AFTER = 0, 1, 2, 3, 4


@_jit
def _value_end(data, i, end):
    """Behind the value that begins at ``i``, with all that it holds; -1 if it is not valid, or too deep."""
    if data[i] != _OPEN and data[i] != _OPEN_LIST:
        return _scalar_end(data, i, end)
    objects = np.uint64(0)  # the lowest bit: whether the innermost container is an object
    depth = 0
    expected = _VALUE
    while i < end:
        i = _past_space(data, i, end)
        if i >= end:
            return -1
        c = data[i]
        closes = False
        if expected <= _FIRST_VALUE:
            if c in (_OPEN, _OPEN_LIST):
                if depth == MAX_DEPTH:
                    return -1
                depth += 1
                objects = (objects << np.uint64(1)) | np.uint64(1 if c == _OPEN else 0)
                expected = _FIRST_KEY if c == _OPEN else _FIRST_VALUE
                i += 1
            elif c == _CLOSE_LIST and expected == _FIRST_VALUE:
                closes = True
            else:
                i = _scalar_end(data, i, end)
                if i < 0:
                    return -1
                expected = _AFTER
        elif expected == _AFTER:
            if c == _COMMA:
                expected = _KEY if objects & np.uint64(1) else _VALUE
                i += 1
            elif c == (_CLOSE if objects & np.uint64(1) else _CLOSE_LIST):
                closes = True
            else:
                return -1
        elif c == _QUOTE:
            i = _string_end(data, i + 1, end)
            if i < 0:
                return -1
            i = _past_space(data, i, end)
            if i >= end or data[i] != _COLON:
                return -1
            i += 1
            expected = _VALUE
        elif c == _CLOSE and expected == _FIRST_KEY:
            closes = True
        else:
            return -1
        if closes:
            depth -= 1
            objects >>= np.uint64(1)
            i += 1
            if depth == 0:
                return i
            expected = _AFTER
    return -1


@_jit
def _which_key(data, start, stop, keys, edges):
    """The number of a key, -1 if it is not among those that are wanted, -2 if an escape hides what it is."""
    for j in range(start, stop):
        if data[j] == _BACKSLASH:
            return -2
    for k in range(edges.size - 1):
        if edges[k + 1] - edges[k] == stop - start:
            same = True
            for j in range(stop - start):
                if data[start + j] != keys[edges[k] + j]:
                    same = False
                    break
            if same:
                return k
    return -1


@_jit
def _scan_line(data, i, end, keys, edges, spans):
    """The place of the brace that closes the object, as a negative number if it holds nothing; 0 if unsure."""
    i = _past_space(data, i, end)
    if i >= end or data[i] != _OPEN:
        return 0
    i = _past_space(data, i + 1, end)
    if i < end and data[i] == _CLOSE:
        return -i if _past_space(data, i + 1, end) == end else 0
    while i < end:
        if data[i] != _QUOTE:
            return 0
        key = i + 1
        i = _string_end(data, key, end)
        if i < 0:
            return 0
        wanted = _which_key(data, key, i - 1, keys, edges)
        if wanted == -2:
            return 0
        i = _past_space(data, i, end)
        if i >= end or data[i] != _COLON:
            return 0
        i = _past_space(data, i + 1, end)
        if i >= end:
            return 0
        value = i
        i = _value_end(data, i, end)
        if i < 0:
            return 0
        if wanted >= 0:
            spans[wanted, 0] = value
            spans[wanted, 1] = i
        i = _past_space(data, i, end)
        if i >= end:
            return 0
        if data[i] == _CLOSE:
            return i if _past_space(data, i + 1, end) == end else 0
        if data[i] != _COMMA:
            return 0
        i = _past_space(data, i + 1, end)
    return 0


@_jit
def scan(data, starts, ends, keys, edges):
    """For each line: `FINE` or `UNSURE`, where the values of the wanted keys stand, and where the object closes.

    ``keys[edges[k] : edges[k + 1]]`` is wanted key ``k``. Spans are (start, stop) in ``data``, quotes included, of the
    last member where a key is there twice; (-1, -1) where there is none. The closing brace is given as a negative
    number if the object has no members.
    """
    rows = starts.size
    status = np.full(rows, UNSURE, dtype=np.uint8)
    spans = np.full((rows, edges.size - 1, 2), -1, dtype=np.int64)
    closing = np.zeros(rows, dtype=np.int64)
    for row in range(rows):
        closing[row] = _scan_line(data, starts[row], ends[row], keys, edges, spans[row])
        if closing[row] != 0:
            status[row] = FINE
    return status, spans, closing


@_jit
def _write_utf8(out, at, code):
    if code < 0x80:
        out[at] = code
        return at + 1
    if code < 0x800:
        out[at] = 0xC0 | (code >> 6)
        out[at + 1] = 0x80 | (code & 0x3F)
        return at + 2
    if code < 0x10000:
        out[at] = 0xE0 | (code >> 12)
        out[at + 1] = 0x80 | ((code >> 6) & 0x3F)
        out[at + 2] = 0x80 | (code & 0x3F)
        return at + 3
    out[at] = 0xF0 | (code >> 18)
    out[at + 1] = 0x80 | ((code >> 12) & 0x3F)
    out[at + 2] = 0x80 | ((code >> 6) & 0x3F)
    out[at + 3] = 0x80 | (code & 0x3F)
    return at + 4


@_jit
def _next_backslash(data, i, end):
    last = data.size - WIDTH
    while i < end:
        if i <= last:
            mask = backslash_mask(data, i)
            if mask == 0:
                i += WIDTH
                continue
            i += first_bit(mask)
            return i if i < end else end
        if data[i] == _BACKSLASH:
            return i
        i += 1
    return end


@_jit
def unescape(data, starts, ends):
    """The strings that stand between ``starts`` and ``ends`` (quotes not included, known to be valid), end to end."""
    room = 0
    for row in range(starts.size):
        room += ends[row] - starts[row]
    out = np.empty(room, dtype=np.uint8)
    edges = np.empty(starts.size + 1, dtype=np.int64)
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
                at = _write_utf8(out, at, code)
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
    return out[:at], edges


@_jit
def _next_to_escape(data, i, end):
    last = data.size - WIDTH
    while i < end:
        if i <= last:
            mask = escape_mask(data, i)
            if mask == 0:
                i += WIDTH
                continue
            i += first_bit(mask)
            return i if i < end else end
        c = data[i]
        if c in (_QUOTE, _BACKSLASH) or c < 32:
            return i
        i += 1
    return end


@_jit
def _short_escape(c):
    """The letter of a control character's escape; 0 if it has none."""
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


@_jit
def escape(data, starts, ends):
    """UTF-8 texts as JSON strings with their quotes, end to end, and their edges."""
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
    out = np.empty(size, dtype=np.uint8)
    edges = np.empty(starts.size + 1, dtype=np.int64)
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
    return out, edges


@_jit
def line_feeds(data):
    """Where line feeds stand."""
    found = np.empty(data.size // 512 + 16, dtype=np.int64)
    count = 0
    i = 0
    last = data.size - WIDTH
    while i < data.size:
        if i <= last:
            mask = line_feed_mask(data, i)
            if mask == 0:
                i += WIDTH
                continue
            i += first_bit(mask)
        elif data[i] != 10:
            i += 1
            continue
        if count == found.size:
            more = np.empty(2 * count, dtype=np.int64)
            more[:count] = found
            found = more
        found[count] = i
        count += 1
        i += 1
    return found[:count]


@_jit
def gather(data, starts, ends):
    """The pieces of ``data`` end to end, and their edges."""
    edges = np.empty(starts.size + 1, dtype=np.int64)
    at = 0
    for row in range(starts.size):
        edges[row] = at
        at += ends[row] - starts[row]
    edges[starts.size] = at
    out = np.empty(at, dtype=np.uint8)
    for row in range(starts.size):
        copy_bytes(out, edges[row], data, starts[row], ends[row] - starts[row])
    return out, edges


@_jit
def join_lines(data, starts, ends):
    """The pieces of ``data``, each with a line feed behind it."""
    size = starts.size
    for row in range(starts.size):
        size += ends[row] - starts[row]
    out = np.empty(size, dtype=np.uint8)
    at = 0
    for row in range(starts.size):
        copy_bytes(out, at, data, starts[row], ends[row] - starts[row])
        at += ends[row] - starts[row]
        out[at] = 10
        at += 1
    return out
