"""How much memory and how many threads libraries may use in this process."""

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


VARIABLES = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "NUMBA_NUM_THREADS",
    "RAYON_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
)
"""Read by libraries when they are loaded."""


def limit_threads(cpus: float) -> None:
    """Let libraries that are loaded, or will be, use so many threads (at least one)."""
    n = max(1, int(cpus))
    for name in VARIABLES:
        os.environ[name] = str(n)
    loaded = sys.modules
    if "numpy" in loaded or "torch" in loaded:
        import threadpoolctl

        threadpoolctl.threadpool_limits(n)
    if "pyarrow" in loaded:
        loaded["pyarrow"].set_cpu_count(n)
        loaded["pyarrow"].set_io_thread_count(max(2, n))
    if "torch" in loaded:
        loaded["torch"].set_num_threads(n)
    if "numba" in loaded:
        loaded["numba"].set_num_threads(min(n, loaded["numba"].config.NUMBA_NUM_THREADS))
