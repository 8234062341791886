"""NVML's reports of the GPUs of this machine: how busy they are, their power, and what each worker holds of them."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from gristmill.scheduling.snapshot import GpuSnapshot, GpuWorker

INTERVAL_S = 1.0
"""NVML averages over about as long."""


class WorkerProcessOnGpu(NamedTuple):
    """A worker, its step, and its process."""

    worker: int
    step: int
    pid: int


class GpuUsage:
    """Samples the GPUs that a run uses, at most once per `INTERVAL_S`.

    ``devices`` are named as in CUDA_VISIBLE_DEVICES. Without NVML (package nvidia-ml-py) there is nothing to show.
    """

    def __init__(self, devices: Sequence[str]) -> None:
        self._devices = devices
        self._handles: list[Any] | None = None
        self._nvml: Any = None
        self._due = 0.0
        self._last: tuple[GpuSnapshot, ...] = ()

    def sample(self, workers: Iterable[WorkerProcessOnGpu]) -> tuple[GpuSnapshot, ...]:
        """The GPUs now, or up to `INTERVAL_S` ago."""
        now = time.monotonic()
        if not self._devices or now < self._due:
            return self._last
        self._due = now + INTERVAL_S
        if self._handles is None:
            self._handles = self._open()
        by_pid = {one.pid: one for one in workers}
        self._last = tuple(self._read(index, handle, by_pid) for index, handle in enumerate(self._handles))
        return self._last

    def _open(self) -> list[Any]:
        try:
            import pynvml
        except ImportError:
            return []
        try:
            pynvml.nvmlInit()
            handles = [
                pynvml.nvmlDeviceGetHandleByUUID(name)
                if name.startswith("GPU-")
                else pynvml.nvmlDeviceGetHandleByIndex(int(name))
                for name in self._devices
            ]
        except (pynvml.NVMLError, ValueError):  # no driver, or logical GPUs, which only tests have
            return []
        self._nvml = pynvml
        return handles

    def _read(self, index: int, handle: Any, by_pid: Mapping[int, WorkerProcessOnGpu]) -> GpuSnapshot:
        memory = self._nvml.nvmlDeviceGetMemoryInfo(handle)
        held = {one.pid: one.usedGpuMemory or 0 for one in self._ask("ComputeRunningProcesses", handle, ())}
        rates = self._ask("UtilizationRates", handle, None)
        return GpuSnapshot(
            index=index,
            busy_percent=0 if rates is None else rates.gpu,
            memory_bytes=memory.used,
            memory_total=memory.total,
            watts=self._ask("PowerUsage", handle, 0) / 1000,
            workers=tuple(
                GpuWorker(by_pid[pid].worker, by_pid[pid].step, size) for pid, size in held.items() if pid in by_pid
            ),
        )

    def _ask(self, what: str, handle: Any, otherwise: Any) -> Any:
        """A figure that not every GPU or driver reports."""
        try:
            return getattr(self._nvml, f"nvmlDeviceGet{what}")(handle)
        except self._nvml.NVMLError:
            return otherwise
