"""How much memory the processes of a run use."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping

from gristmill.backends.engine import machine
from gristmill.backends.engine.machine import descendants_of

_PAGE = os.sysconf("SC_PAGE_SIZE")
_LOOK_S = (0.1, 0.5)
_FILLED_PER_S = 8 << 30
_FAMILIES_S = 0.25
_OOM_S = 2.0
_EXACT_S = (1.0, 10.0)
"""After how many seconds shared memory is measured exactly, first and at most: it is costly."""


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


class OomKills:
    """Reports whether the system has just killed a process for lack of memory, perhaps a worker.

    A kill counts for `_OOM_S` to twice that: the exit of a large process may be known only a while later.
    """

    def __init__(self) -> None:
        self._before = self._last = machine.oom_kills()
        self._look_at = 0.0

    def check(self, now: float) -> None:
        """Forget kills of long ago."""
        if now >= self._look_at:
            self._look_at = now + _OOM_S
            self._before, self._last = self._last, machine.oom_kills()

    def take(self) -> bool:
        """Whether there was a kill, which then counts no more."""
        kills = machine.oom_kills()
        found = kills > self._before
        if found:
            self._before = self._last = kills
        return found


class MemoryUse:
    """The bytes that a run uses, has used at most, and may use."""

    def __init__(self, limit: int = 0) -> None:
        self.limit = limit
        self.now = 0
        self.peak = 0

    def note(self, now: int) -> None:
        self.now = now
        self.peak = max(self.peak, now)


class MemoryWatch(MemoryUse):
    """Estimates the memory of a run often, which is cheap, and now and then measures it exactly."""

    def __init__(self, limit: int) -> None:
        super().__init__(limit)
        self.resident: dict[int, int] = {}
        """Resident bytes of each worker and the processes it started, as of the last look."""
        self._families: dict[int, list[int]] = {}
        """The processes that workers started."""
        self._families_at = 0.0
        self._apart = 0
        """By how much all processes together exceed the private memory of the workers."""
        self._exact_at = 0.0
        self._exact_every = _EXACT_S[0]

    @property
    def again_s(self) -> float:
        """After how many seconds to look again: earlier if less memory is left, which can be filled at some rate."""
        return min(_LOOK_S[1], max(_LOOK_S[0], (self.limit - self.now) / _FILLED_PER_S))

    def check(self, workers: Mapping[int, int], others: Iterable[int], arenas: int) -> int | None:
        """Measure ``workers`` by pid, other processes and the bytes in arenas.

        Return the worker to end if that is too much; None if it is not, or if the end of no worker would help.
        """
        at = time.monotonic()
        if at >= self._families_at:
            self._families_at = at + _FAMILIES_S
            self._families = {worker: found for worker, pid in workers.items() if (found := descendants_of(pid))}
        private: dict[int, int] = {}
        self.resident = {}
        for worker, pid in workers.items():
            family = [resident(x) for x in (pid, *self._families.get(worker, ()))]
            self.resident[worker] = sum(total for total, _ in family)
            private[worker] = sum(own for _, own in family)
        own = sum(private.values())
        exact = at >= self._exact_at
        if exact:
            self._exact_at = at + self._exact_every
            self._exact_every = min(self._exact_every * 2, _EXACT_S[1])
        if exact or arenas + own + self._apart > self.limit:
            started = [pid for worker in workers for pid in self._families.get(worker, ())]
            self._apart = proportional([*workers.values(), *started, *others]) - own
        self.note(max(0, arenas + own + self._apart))
        if self.now <= self.limit or not own or self.now - own > self.limit:
            return None
        return max(private, key=lambda worker: private[worker])
