"""What has been learnt about a step, in integers: service times, fan-out and output sizes."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from math import isqrt

from gristmill.scheduling.config import UNIT, Prior

_WINDOW = 64
_RECENT = 16
"""Units that are compared with those before them, to see whether the speed has changed."""
_PRIOR_TASKS = 3
"""What is known from an earlier run counts like so many tasks."""
_UNKNOWN_CV = 700_000
"""How much service times are taken to vary while too few have been seen, in millionths of their mean."""
_FAN_WINDOW = 1024
_UNUSUAL = 4
"""A task that has been running for so many times the mean says that the speed has changed."""


@dataclass(slots=True)
class ServiceEstimate:
    """Time per task over roughly the last hundred tasks, and outputs per task.

    The latest units are set against those before them. When the difference is beyond chance the speed has changed,
    and what was known of it before is forgotten.
    """

    old_tasks: int = 0
    old_busy_us: int = 0
    old_squares: int = 0
    recent: deque[tuple[int, int]] = field(default_factory=deque)
    """(tasks, busy time) of the latest units."""
    recent_tasks: int = 0
    recent_busy_us: int = 0
    part_us: int = 0
    """Time of tasks that are still running, as far as they have told it."""
    fan_tasks: int = 0
    fan_outputs: int = 0
    samples: int = 0
    """Tasks ever seen."""
    changes: int = 0
    """How often the speed has changed."""

    def expect(self, prior: Prior) -> None:
        """Start from what an earlier run has measured."""
        self.old_tasks = _PRIOR_TASKS
        self.old_busy_us = _PRIOR_TASKS * prior.service_us
        self.old_squares = self.old_busy_us * prior.service_us * 5 // 4
        self.fan_tasks = _PRIOR_TASKS
        self.fan_outputs = _PRIOR_TASKS * prior.fan_out // UNIT

    @property
    def is_known(self) -> bool:
        """There is something to go by: measured, told by a task that is still running, or from an earlier run."""
        return bool(self.old_tasks or self.recent_tasks or self.part_us)

    def add(self, tasks: int, busy_us: int, outputs: int) -> None:
        self.samples += tasks
        self.part_us = 0
        self.fan_tasks += tasks
        self.fan_outputs += outputs
        if self.fan_tasks > _FAN_WINDOW:
            self.fan_tasks //= 2
            self.fan_outputs //= 2
        recent = self.recent
        recent.append((tasks, busy_us))
        self.recent_tasks += tasks
        self.recent_busy_us += busy_us
        if len(recent) > _RECENT:
            if not self.samples & 3 and self._has_changed():
                self.old_tasks = self.old_busy_us = self.old_squares = 0
                self.changes += 1
            tasks, busy_us = recent.popleft()
            self.recent_tasks -= tasks
            self.recent_busy_us -= busy_us
            self.old_tasks += tasks
            self.old_busy_us += busy_us
            self.old_squares += busy_us * busy_us // tasks
            if self.old_tasks >= 2 * _WINDOW:
                self.old_tasks //= 2
                self.old_busy_us //= 2
                self.old_squares //= 2

    def _has_changed(self) -> bool:
        """Whether the latest units differ from those before by a quarter, and by more than chance explains."""
        n, m = self.old_tasks, self.recent_tasks
        if n < 8:
            return False
        mean = self.old_busy_us // n
        difference = abs(self.recent_busy_us // m - mean)
        if difference * 4 < mean:
            return False
        variance = max(0, self.old_squares // n - mean * mean)
        return difference * difference * n * m > 16 * variance * (n + m)

    def add_part(self, busy_us: int, outputs: int) -> None:
        """A task that is still running made some outputs."""
        self.part_us += busy_us
        self.fan_outputs += outputs

    def service_us(self) -> int:
        """Microseconds per task; 0 when nothing is known. Parts of a first task give a lower bound."""
        tasks = self.old_tasks + self.recent_tasks
        if not tasks:
            return self.part_us
        return max(1, (self.old_busy_us + self.recent_busy_us) // tasks)

    def with_running(self, elapsed_us: list[int]) -> int:
        """Microseconds per task, with those that still run as far as they tell something.

        While few have ended, whatever runs longer than those did is news; later only what runs far longer.
        """
        tasks = self.old_tasks + self.recent_tasks
        busy = self.old_busy_us + self.recent_busy_us
        unusual = 1 if tasks < _RECENT else _UNUSUAL
        for elapsed in sorted(elapsed_us, reverse=True):
            if elapsed * tasks <= busy * unusual:
                break
            tasks += 1
            busy += elapsed
        return max(1, busy // tasks) if tasks else self.part_us

    def error(self) -> int:
        """The standard error of the service time, in millionths of it."""
        n = self.old_tasks + self.recent_tasks
        return self.deviation_us() * UNIT // max(1, self.service_us()) // max(1, isqrt(n))

    def deviation_us(self) -> int:
        """How much service times differ from one another: their standard deviation."""
        if self.old_tasks < 8:
            return self.service_us() * _UNKNOWN_CV // UNIT
        mean = self.old_busy_us // self.old_tasks
        return isqrt(max(0, self.old_squares // self.old_tasks - mean * mean))

    def fan_out(self) -> int:
        """Outputs per task in millionths; one when nothing is known. Parts of a first task give a lower bound."""
        if not (self.fan_tasks or self.fan_outputs):
            return UNIT
        return self.fan_outputs * UNIT // (self.fan_tasks or 1)


@dataclass(slots=True)
class SizeEstimate:
    """The largest output of a task seen lately, rounded up so that it seldom changes; 0 when unknown."""

    bytes: int = 0
    known: bool = False
    _peak: int = 0

    def add(self, size: int) -> bool:
        """Learn a size; True if the estimate changed."""
        self._peak = max(size, self._peak - self._peak // 64)
        grain = 1 << max(self._peak.bit_length() - 3, 10)
        rounded = -(-self._peak // grain) * grain
        if rounded == self.bytes and self.known:
            return False
        self.known = True
        self.bytes = rounded
        return True
