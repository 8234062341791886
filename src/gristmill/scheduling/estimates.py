"""What has been learnt about a step, in integers: service times, setup times, fan-out and output sizes."""

from __future__ import annotations

from dataclasses import dataclass

from gristmill.scheduling.config import UNIT

_WINDOW = 64


@dataclass(slots=True)
class ServiceEstimate:
    """Time per task over roughly the last 64 tasks, and outputs per task."""

    tasks: int = 0
    busy_us: int = 0
    outputs: int = 0
    samples: int = 0
    """Tasks ever seen."""

    def add(self, tasks: int, busy_us: int, outputs: int) -> None:
        self.tasks += tasks
        self.busy_us += busy_us
        self.outputs += outputs
        self.samples += tasks
        if self.tasks >= 2 * _WINDOW:
            self.tasks //= 2
            self.busy_us //= 2
            self.outputs //= 2

    def add_part(self, busy_us: int, outputs: int) -> None:
        """A task that is still running made some outputs."""
        self.busy_us += busy_us
        self.outputs += outputs

    def service_us(self) -> int:
        """Microseconds per task; 0 when nothing is known. Parts of a first task give a lower bound."""
        return max(1, self.busy_us // (self.tasks or 1)) if self.busy_us or self.tasks else 0

    def fan_out(self) -> int:
        """Outputs per task in millionths; one when nothing is known. Parts of a first task give a lower bound."""
        return self.outputs * UNIT // (self.tasks or 1) if self.outputs or self.tasks else UNIT


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
