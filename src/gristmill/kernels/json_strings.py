"""JSON strings in buffers: what they say, and how texts are written as such."""

from __future__ import annotations

from typing import Any

import numpy as np

from gristmill.kernels.compile import Kernel

Array = np.ndarray[Any, Any]

UNESCAPE = Kernel("json_string_kernels.unescape")
ESCAPED_SIZE = Kernel("json_string_kernels.escaped_size")
ESCAPE = Kernel("json_string_kernels.escape")


def unescape(data: Array, starts: Array, ends: Array) -> tuple[Array, Array]:
    """The strings that stand between ``starts`` and ``ends`` (quotes not included, known to be valid), end to end.

    With their edges.
    """
    out = np.empty(int((ends - starts).sum()), dtype=np.uint8)
    edges = np.empty(len(starts) + 1, dtype=np.int64)
    UNESCAPE(data, starts, ends, out, edges)
    return out[: edges[-1]], edges


def escape(data: Array, starts: Array, ends: Array) -> tuple[Array, Array]:
    """UTF-8 texts as JSON strings with their quotes, end to end, and their edges."""
    out = np.empty(ESCAPED_SIZE(data, starts, ends), dtype=np.uint8)
    edges = np.empty(len(starts) + 1, dtype=np.int64)
    ESCAPE(data, starts, ends, out, edges)
    return out, edges
