"""Memory that was freed and will soon be needed again."""

from __future__ import annotations

import ctypes
import os
import sys

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
MAPPED_FROM = 32 << 20
"""The largest that every glibc takes. What is larger is given back as soon as it is freed."""
KEPT_BYTES = 128 << 20
ARROW_POOL = "ARROW_DEFAULT_MEMORY_POOL"
SET_BY_USERS = ("MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_", "GLIBC_TUNABLES")


def reuse_freed_memory() -> None:
    """Let this process keep memory that it frees, up to a limit, for what it allocates next.

    Batches are of some megabytes each, which glibc gives back at once. The system then hands out the same pages
    again, one by one and each filled with zeros, which can take as long as the work on them. Arrow is to take its
    memory from there too. What users have set by environment variables stays.
    """
    if any(name in os.environ for name in SET_BY_USERS):
        return
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):  # another C library
        return
    done = mallopt(_MMAP_THRESHOLD, MAPPED_FROM) and mallopt(_TRIM_THRESHOLD, KEPT_BYTES)
    if done and ARROW_POOL not in os.environ:
        os.environ[ARROW_POOL] = "system"  # read when it is loaded
        if "pyarrow" in sys.modules:
            arrow = sys.modules["pyarrow"]
            arrow.set_memory_pool(arrow.system_memory_pool())
