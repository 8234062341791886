"""Keeping the thread pools of libraries within a stage's CPUs."""

from __future__ import annotations

import os
import sys

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
