"""JSON objects in one buffer, one per line: find the values of wanted keys, copy and join lines; JSON strings.

A line that is not clearly a valid object is `UNSURE`. The caller gives it to a full parser.
"""

from __future__ import annotations

from gristmill.kernels.compile import Kernel
from gristmill.lazy import Array, np

FINE = 0
UNSURE = 1

SCAN = Kernel("json_line_kernels.scan")
LINE_FEEDS = Kernel("json_line_kernels.line_feeds")
GATHER = Kernel("json_line_kernels.gather")
JOIN_LINES = Kernel("json_line_kernels.join_lines")


def scan(data: Array, starts: Array, ends: Array, keys: Array, edges: Array) -> tuple[Array, Array, Array]:
    """Return for each line `FINE` or `UNSURE`, the spans of the wanted values, and the place of the closing brace.

    ``keys[edges[k] : edges[k + 1]]`` is wanted key ``k``. Spans are (start, stop) in ``data``, with quotes. If a key
    occurs twice the last member counts; (-1, -1) means none. The place of the brace is negative if the object is empty.
    """
    rows = len(starts)
    status = np.full(rows, UNSURE, dtype=np.uint8)
    spans = np.full((rows, len(edges) - 1, 2), -1, dtype=np.int64)
    closing = np.zeros(rows, dtype=np.int64)
    SCAN((data, starts, ends), keys, edges, status, spans, closing)
    return status, spans, closing


def line_feeds(data: Array) -> Array:
    """Return the places of all line feeds."""
    size = data.size // 512 + 16
    parts: list[Array] = []
    begin = 0
    while True:
        found = np.empty(size, dtype=np.int64)
        count = LINE_FEEDS(data, begin, found)
        parts.append(found[:count])
        if count < size:
            return parts[0] if len(parts) == 1 else np.concatenate(parts)
        begin = int(found[-1]) + 1
        size *= 2


def gather(data: Array, more: Array, starts: Array, ends: Array) -> tuple[Array, Array]:
    """Return slices of ``data``, or of ``more`` as if it followed ``data``, end to end, and their edges."""
    edges = np.zeros(len(starts) + 1, dtype=np.int64)
    np.cumsum(ends - starts, out=edges[1:])
    out = np.empty(int(edges[-1]), dtype=np.uint8)
    GATHER(data, more, starts, ends, edges, out)
    return out, edges


def join_lines(data: Array, starts: Array, ends: Array) -> Array:
    """Return slices of ``data``, each with a line feed after it."""
    out = np.empty(int((ends - starts).sum()) + len(starts), dtype=np.uint8)
    JOIN_LINES((data, starts, ends), out)
    return out


UNESCAPE = Kernel("json_string_kernels.unescape")
ESCAPED_SIZE = Kernel("json_string_kernels.escaped_size")
ESCAPE = Kernel("json_string_kernels.escape")


def unescape(data: Array, starts: Array, ends: Array) -> tuple[Array, Array]:
    """Return valid strings, given without their quotes, unescaped end to end, and their edges."""
    out = np.empty(int((ends - starts).sum()), dtype=np.uint8)
    edges = np.empty(len(starts) + 1, dtype=np.int64)
    UNESCAPE((data, starts, ends), out, edges)
    return out[: edges[-1]], edges


def escape(data: Array, starts: Array, ends: Array) -> tuple[Array, Array]:
    """Return UTF-8 texts as JSON strings with quotes, end to end, and their edges."""
    out = np.empty(ESCAPED_SIZE((data, starts, ends)), dtype=np.uint8)
    edges = np.empty(len(starts) + 1, dtype=np.int64)
    ESCAPE((data, starts, ends), out, edges)
    return out, edges
