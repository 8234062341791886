"""Which devices make the keys of a barrier stage."""

from __future__ import annotations

from gristmill.backends.base import Executor
from gristmill.stages.barrier import BarrierStage, InputEstimate

GPU_FROM_S = 15
"""A GPU is used if CPUs would take longer than this for keys: it takes time to start, and batches are sent to it."""
CPUS_AS_GOOD = 12
"""More CPUs than this for each GPU are faster than sending texts to it: measured on an H200."""
GPU_SHARE = 0.25
"""The share of a GPU for each worker: one worker alone does not keep it busy."""


def wants_gpu(barrier: BarrierStage, executor: Executor, estimate: InputEstimate | None, workers: int) -> bool:
    """Return whether keys are made on a GPU: by ``device``, or because it is faster on this machine."""
    if barrier.device is not None or executor.on_cluster:
        return barrier.device == "cuda"
    if estimate is None or estimate.documents * estimate.seconds_each < GPU_FROM_S * workers:
        return False
    from gristmill.backends.engine import machine

    limit = executor.limits().gpus
    gpus = len(machine.gpus()) if limit is None else limit
    return barrier.gpu_is_useful and bool(gpus) and workers <= CPUS_AS_GOOD * gpus
