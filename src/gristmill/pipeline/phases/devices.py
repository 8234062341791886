"""Which devices make the keys of a stage that needs all documents."""

from __future__ import annotations

from typing import Any

from gristmill.backends.base import Executor
from gristmill.stages.barrier import BarrierStage, Looked

GPU_FROM_S = 15
"""Seconds that the CPUs would take for keys from which on a GPU is asked: it takes some to be ready, and batches go to
other processes for it."""
CPUS_AS_GOOD = 12
"""With more CPUs than this for each GPU, they make keys sooner than they hand texts to it: measured on an H200."""
GPU_SHARE = 0.25
"""Of a GPU for each worker that makes keys on it: one alone would leave it waiting."""


def wants_gpu(barrier: BarrierStage, executor: Executor, looked: Looked | None, workers: int) -> bool:
    """Whether keys are made by workers that have a GPU: where that was said, or one is seen that is of use."""
    if barrier.device is not None or executor.on_cluster:
        return barrier.device == "cuda"
    if looked is None or looked.documents * looked.seconds_each < GPU_FROM_S * workers:
        return False
    from gristmill.backends.engine import machine

    config: Any = getattr(executor, "config", None)
    told = getattr(config, "num_gpus", None)
    gpus = len(machine.gpus()) if told is None else told
    return barrier.gpu_is_of_use and bool(gpus) and workers <= CPUS_AS_GOOD * gpus
