"""Failures as lines for people, a few at a time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

_FAILURES_SHOWN = 5
_FAILURES_EVERY_S = 10.0


class FailureLines:
    """Shows the first few failures of each stage as they come; of the others, now and then, how many there were."""

    def __init__(self, show: Callable[[str], None]) -> None:
        self._show = show
        self._seen: Counter[str] = Counter()
        self._untold: Counter[str] = Counter()
        self._tell_at = 0.0

    def say(self, stage: str, text: str, now: float) -> None:
        self._seen[stage] += 1
        if self._seen[stage] <= _FAILURES_SHOWN:
            self._show(text)
            return
        if not self._untold:
            self._tell_at = max(self._tell_at, now)
        self._untold[stage] += 1

    def catch_up(self, now: float) -> None:
        """Say in one line what has not been said, unless that was done a moment ago."""
        if self._untold and now >= self._tell_at:
            self._show(
                "; ".join(f"{stage}: {n:,} more task{'s' * (n != 1)} failed" for stage, n in self._untold.items())
            )
            self._untold.clear()
            self._tell_at = now + _FAILURES_EVERY_S
