"""JSON objects, one per row, in one buffer: where the values of wanted keys stand, and lines put together.

Lines are not judged: one that is not plainly a valid object is `UNSURE`, and the caller asks a full parser.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gristmill.kernels.compile import Kernel

Array = np.ndarray[Any, Any]

FINE = 0
UNSURE = 1

SCAN = Kernel("json_line_kernels.scan")
LINE_FEEDS = Kernel("json_line_kernels.line_feeds")
GATHER = Kernel("json_line_kernels.gather")
JOIN_LINES = Kernel("json_line_kernels.join_lines")


def scan(data: Array, starts: Array, ends: Array, keys: Array, edges: Array) -> tuple[Array, Array, Array]:
    """For each line: `FINE` or `UNSURE`, where the values of the wanted keys stand, and where the object closes.

    ``keys[edges[k] : edges[k + 1]]`` is wanted key ``k``. Spans are (start, stop) in ``data``, quotes included, of the
    last member where a key is there twice; (-1, -1) where there is none. The closing brace is given as a negative
    number if the object has no members.
    """
    rows = len(starts)
    status = np.full(rows, UNSURE, dtype=np.uint8)
    spans = np.full((rows, len(edges) - 1, 2), -1, dtype=np.int64)
    closing = np.zeros(rows, dtype=np.int64)
    SCAN(data, starts, ends, keys, edges, status, spans, closing)
    return status, spans, closing


def line_feeds(data: Array) -> Array:
    """Where line feeds stand."""
    room = data.size // 512 + 16
    parts: list[Array] = []
    begin = 0
    while True:
        found = np.empty(room, dtype=np.int64)
        count = LINE_FEEDS(data, begin, found)
        parts.append(found[:count])
        if count < room:
            return parts[0] if len(parts) == 1 else np.concatenate(parts)
        begin = int(found[-1]) + 1
        room *= 2


def gather(data: Array, more: Array, starts: Array, ends: Array) -> tuple[Array, Array]:
    """The pieces of ``data``, or of ``more`` as if it stood behind it, end to end, and their edges."""
    edges = np.zeros(len(starts) + 1, dtype=np.int64)
    np.cumsum(ends - starts, out=edges[1:])
    out = np.empty(int(edges[-1]), dtype=np.uint8)
    GATHER(data, more, starts, ends, edges, out)
    return out, edges


def join_lines(data: Array, starts: Array, ends: Array) -> Array:
    """The pieces of ``data``, each with a line feed behind it."""
    out = np.empty(int((ends - starts).sum()) + len(starts), dtype=np.uint8)
    JOIN_LINES(data, starts, ends, out)
    return out
