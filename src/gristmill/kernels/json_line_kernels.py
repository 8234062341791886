"""The kernels of `json_lines`. Importing this module loads Numba."""

from __future__ import annotations

import numpy as np

from gristmill.kernels.compile import helper, kernel
from gristmill.kernels.json_lines import FINE
from gristmill.kernels.json_string_kernels import string_end
from gristmill.kernels.utf8 import find_newline
from gristmill.kernels.vector import copy_bytes

MAX_DEPTH = 60
MAX_NUMBER_BYTES = 100

_QUOTE, _BACKSLASH, _COMMA, _COLON = 34, 92, 44, 58
_OPEN, _CLOSE, _OPEN_LIST, _CLOSE_LIST = 123, 125, 91, 93


@helper
def _past_space(data, i, end):
    while i < end and (data[i] == 32 or data[i] == 9 or data[i] == 10 or data[i] == 13):
        i += 1
    return i


@helper
def _digits_end(data, i, end):
    while i < end and 48 <= data[i] <= 57:
        i += 1
    return i


@helper
def _number_end(data, i, end):
    """Return the end of a number; -1 if it is invalid or may be too large for a double."""
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


@helper
def _scalar_end(data, i, end):
    c = data[i]
    if c == _QUOTE:
        return string_end(data, i + 1, end)
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


@helper
def _key_end(data, i, end):
    """Return the place after the colon of the key that begins at ``i``; -1 if it is invalid."""
    i = string_end(data, i + 1, end) if data[i] == _QUOTE else -1
    if i < 0:
        return -1
    i = _past_space(data, i, end)
    return i + 1 if i < end and data[i] == _COLON else -1


_VALUE, _KEY, _FIRST_VALUE, _FIRST_KEY, _AFTER = 0, 1, 2, 3, 4
"""The tokens that may come next. A container may close from `_FIRST_VALUE` on."""


@helper
def _value_end(data, i, end):
    """Return the end of the value that begins at ``i``, with all that it contains; -1 if it is invalid or too deep."""
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
        in_object = objects & np.uint64(1)
        if expected >= _FIRST_VALUE and c == (_CLOSE if in_object else _CLOSE_LIST):
            depth -= 1
            objects >>= np.uint64(1)
            i += 1
            if depth == 0:
                return i
            expected = _AFTER
        elif expected == _AFTER:
            if c != _COMMA:
                return -1
            expected = _KEY if in_object else _VALUE
            i += 1
        elif expected in (_KEY, _FIRST_KEY):
            i = _key_end(data, i, end)
            if i < 0:
                return -1
            expected = _VALUE
        elif c in (_OPEN, _OPEN_LIST):
            if depth == MAX_DEPTH:
                return -1
            depth += 1
            objects = (objects << np.uint64(1)) | np.uint64(c == _OPEN)
            expected = _FIRST_KEY if c == _OPEN else _FIRST_VALUE
            i += 1
        else:
            i = _scalar_end(data, i, end)
            if i < 0:
                return -1
            expected = _AFTER
    return -1


@helper
def _which_key(data, start, stop, keys, edges):
    """Return the number of a key; -1 if it is not wanted, -2 if it has an escape."""
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


@helper
def _scan_line(data, i, end, keys, edges, spans):
    """Return the place of the closing brace, as a negative number if the object is empty; 0 if unsure."""
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
        i = string_end(data, key, end)
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


@kernel("texts bytes ints out_bytes out_ints_cube out_ints")
def scan(texts, keys, edges, status, spans, closing):
    """See `json_lines.scan`. ``status`` and ``spans`` must hold `UNSURE` and -1 before the call."""
    data, starts, ends = texts
    for row in range(starts.size):
        closing[row] = _scan_line(data, starts[row], ends[row], keys, edges, spans[row])
        if closing[row] != 0:
            status[row] = FINE


@kernel("bytes int64 out_ints")
def line_feeds(data, begin, found):
    """Write the places of line feeds from ``begin`` on, as many as fit. Return their number."""
    count = 0
    i = find_newline(data, begin, data.size)
    while i < data.size and count < found.size:
        found[count] = i
        count += 1
        i = find_newline(data, i + 1, data.size)
    return count


@kernel("bytes bytes ints ints ints out_bytes")
def gather(data, more, starts, ends, edges, out):
    """Copy slices of ``data``, or of ``more`` as if it followed ``data``, to ``out[edges[row]:]``."""
    for row in range(starts.size):
        if starts[row] < data.size:
            copy_bytes(out, edges[row], data, starts[row], ends[row] - starts[row])
        else:
            copy_bytes(out, edges[row], more, starts[row] - data.size, ends[row] - starts[row])


@kernel("texts out_bytes")
def join_lines(texts, out):
    """Copy slices of the data, each with a line feed after it."""
    data, starts, ends = texts
    at = 0
    for row in range(starts.size):
        copy_bytes(out, at, data, starts[row], ends[row] - starts[row])
        at += ends[row] - starts[row]
        out[at] = 10
        at += 1
