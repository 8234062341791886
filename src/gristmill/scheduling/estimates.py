"""Estimates of a step, in integers: service times, fan-out and output sizes."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from math import isqrt

from gristmill.scheduling.settings import UNIT, Prior

_WINDOW = 64
_RECENT = 16
"""Units that are compared with those before them, to see whether the speed has changed."""
_PRIOR_TASKS = 3
"""The number of tasks that an estimate of an earlier run counts for,"""
_ENOUGH = 8
"""until so many have been measured."""
_UNKNOWN_CV = 700_000
"""How much service times are taken to vary while too few have been seen, in millionths of their mean."""
_FAN_WINDOW = 1024
_UNUSUAL = 4
"""A task that has been running for this many times the mean is evidence that the speed has changed."""


@dataclass(slots=True)
class ServiceEstimate:
    """Time per task over roughly the last hundred units, and outputs per task.

    The latest units are compared with those before them. If the difference is statistically significant, the speed
    has changed and the older times are forgotten.
    """

    old_units: int = 0
    old_tasks: int = 0
    old_busy_us: int = 0
    old_squares: int = 0
    """Sum of (time of a unit)^2 / its tasks."""
    recent: deque[tuple[int, int]] = field(default_factory=deque)
    """(tasks, busy time) of the latest units."""
    recent_tasks: int = 0
    recent_busy_us: int = 0
    part_us: int = 0
    """A lower bound of the service time, from a task that is still running."""
    fan_tasks: int = 0
    fan_outputs: int = 0
    prior: Prior | None = None
    units: int = 0
    samples: int = 0
    """Tasks ever seen."""
    changes: int = 0
    """How often the speed has changed."""

    @property
    def is_known(self) -> bool:
        """Whether there is an estimate: measured, or from an earlier run."""
        return bool(self.recent_tasks or self.prior)

    def add(self, tasks: int, busy_us: int, outputs: int) -> None:
        self.units += 1
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
            if not self.units & 3 and self._has_changed():
                self.old_units = self.old_tasks = self.old_busy_us = self.old_squares = 0
                self.changes += 1
            tasks, busy_us = recent.popleft()
            self.recent_tasks -= tasks
            self.recent_busy_us -= busy_us
            self.old_units += 1
            self.old_tasks += tasks
            self.old_busy_us += busy_us
            self.old_squares += busy_us * busy_us // tasks
            if self.old_units >= 2 * _WINDOW:
                self.old_units //= 2
                self.old_tasks //= 2
                self.old_busy_us //= 2
                self.old_squares //= 2

    def _has_changed(self) -> bool:
        """Whether the latest units differ from those before by a quarter, and significantly."""
        n, m = self.old_units, len(self.recent)
        if n < 8:
            return False
        mean = self.old_busy_us // self.old_tasks
        difference = abs(self.recent_busy_us // self.recent_tasks - mean)
        if difference * 4 < mean:
            return False
        return difference * difference * n * m > 16 * self._variance() * (n + m)

    def _variance(self) -> int:
        """Return the variance of the mean task time of a unit."""
        mean = self.old_busy_us // self.old_tasks
        return max(0, self.old_squares // self.old_tasks - mean * mean)

    def add_part(self, busy_us: int, outputs: int) -> None:
        """Add a task that is still running: its time so far and its outputs."""
        self.part_us = max(self.part_us, busy_us)
        self.fan_outputs += outputs

    def _sums(self) -> tuple[int, int]:
        """Return tasks and their time. The prior counts until enough tasks are measured, or it is wrong."""
        tasks = self.old_tasks + self.recent_tasks
        busy = self.old_busy_us + self.recent_busy_us
        if self.prior is None or tasks >= _ENOUGH:
            return tasks, busy
        forecast = self.prior.service_us * tasks
        if tasks >= _PRIOR_TASKS and not forecast < 2 * busy < 4 * forecast:
            return tasks, busy
        return tasks + _PRIOR_TASKS, busy + _PRIOR_TASKS * self.prior.service_us

    def service_us(self) -> int:
        """Microseconds per task; 0 when nothing is known. What a first task has taken so far is a lower bound."""
        tasks, busy = self._sums()
        return max(1, busy // tasks) if tasks else self.part_us

    def with_running(self, elapsed_us: list[int]) -> int:
        """Return the microseconds per task, with running tasks as far as they change the estimate.

        While few have ended, whatever runs longer than those did is news; later only what runs far longer.
        """
        tasks, busy = self._sums()
        unusual = 1 if tasks < _RECENT else _UNUSUAL
        for elapsed in sorted(elapsed_us, reverse=True):
            if elapsed * tasks <= busy * unusual:
                break
            tasks += 1
            busy += elapsed
        return max(1, busy // tasks) if tasks else self.part_us

    def error(self) -> int:
        """Return the standard error of the service time, in millionths of it."""
        units = self.old_units + len(self.recent) + (_PRIOR_TASKS if self.prior is not None else 0)
        return self.deviation_us() * UNIT // max(1, self.service_us()) // max(1, isqrt(units))

    def deviation_us(self) -> int:
        """Return the standard deviation of the mean task times of units."""
        return isqrt(self._variance()) if self.old_units >= 8 else self.service_us() * _UNKNOWN_CV // UNIT

    def fan_out(self) -> int:
        """Outputs per task in millionths; one when nothing is known. Parts of a first task give a lower bound."""
        tasks, outputs = self.fan_tasks, self.fan_outputs * UNIT
        if self.prior is not None and tasks < _ENOUGH:
            tasks += _PRIOR_TASKS
            outputs += _PRIOR_TASKS * self.prior.fan_out
        return outputs // (tasks or 1) if tasks or outputs else UNIT


@dataclass(slots=True)
class SizeEstimate:
    """The largest output of a task seen lately, rounded up so that it seldom changes; 0 when unknown."""

    bytes: int = 0
    known: bool = False
    _peak: int = 0

    def add(self, size: int) -> bool:
        """Add a size; return True if the estimate changed."""
        self._peak = max(size, self._peak - self._peak // 64)
        grain = 1 << max(self._peak.bit_length() - 3, 10)
        rounded = -(-self._peak // grain) * grain
        if rounded == self.bytes and self.known:
            return False
        self.known = True
        self.bytes = rounded
        return True
