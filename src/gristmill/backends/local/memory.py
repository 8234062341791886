"""How much memory the processes of a run use."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping

_PAGE = os.sysconf("SC_PAGE_SIZE")
_EXACT_S = (1.0, 10.0)
"""Shared memory is told apart after so many seconds, then ever more seldom: it is costly to find out."""


def resident(pid: int) -> tuple[int, int]:
    """Resident bytes of a process, and how many of them are its own (not shared with files); zeros if it is gone."""
    try:
        with open(f"/proc/{pid}/statm", "rb") as file:
            _, total, shared, *_ = file.read().split()
    except (OSError, ValueError):
        return 0, 0
    return int(total) * _PAGE, (int(total) - int(shared)) * _PAGE


def proportional(pids: Iterable[int]) -> int:
    """Bytes of several processes with what they share counted once (the sum of their PSS)."""
    total = 0
    for pid in pids:
        try:
            with open(f"/proc/{pid}/smaps_rollup", "rb") as file:
                for line in file:
                    if line.startswith(b"Pss:"):
                        total += int(line.split()[1]) * 1024
                        break
        except (OSError, ValueError):
            continue
    return total


class MemoryWatch:
    """What a run uses: looked at often by what is cheap to know, now and then exactly."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.now = 0
        self.peak = 0
        self.resident: dict[int, int] = {}
        """Resident bytes of each worker, as of the last look."""
        self._apart = 0
        """By how much all processes together exceed the private memory of the workers."""
        self._look_at = 0.0
        self._exact_at = 0.0
        self._exact_every = _EXACT_S[0]

    def look(self, workers: Mapping[int, int], others: Iterable[int], arenas: int, tick_s: float) -> int | None:
        """Take stock, if it is time to: ``workers`` by pid, other processes, bytes in arenas.

        The worker to end when that is too much. None when it is not, or when no worker's end would help.
        """
        at = time.monotonic()
        if at < self._look_at:
            return None
        private: dict[int, int] = {}
        self.resident = {}
        for worker, pid in workers.items():
            self.resident[worker], private[worker] = resident(pid)
        own = sum(private.values())
        exact = at >= self._exact_at
        if exact:
            self._exact_at = at + self._exact_every
            self._exact_every = min(self._exact_every * 2, _EXACT_S[1])
        if exact or arenas + own + self._apart > self.limit:
            self._apart = proportional([*workers.values(), *others]) - own
        self.now = max(0, arenas + own + self._apart)
        self.peak = max(self.peak, self.now)
        self._look_at = at + (tick_s / 2 if self.now * 2 > self.limit else tick_s * 1.5)
        if self.now <= self.limit or not own or self.now - own > self.limit:
            return None
        return max(private, key=lambda worker: private[worker])
