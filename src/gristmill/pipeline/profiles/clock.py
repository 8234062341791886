"""The wall and CPU time of a run."""

from __future__ import annotations

import resource
import time


class Clock:
    """Wall and CPU time since it was made."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._cpu = _cpu_s()

    @property
    def wall_s(self) -> float:
        return time.monotonic() - self._began

    @property
    def cpu_s(self) -> float:
        return _cpu_s() - self._cpu


def _cpu_s() -> float:
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)
