"""JSON strings in buffers: unescape them, and write texts as JSON strings."""

from __future__ import annotations

from gristmill.kernels.compile import Kernel
from gristmill.lazy import Array, np

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
