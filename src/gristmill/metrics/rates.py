"""Rates, progress and time left, from the differences between snapshots. Pure: no clock, no output."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace

from gristmill.scheduling.snapshot import Snapshot, StepSnapshot

WINDOW_S = 10.0
ETA_WINDOW_S = 30.0
SPACING = 100
"""A window holds about this many snapshots, however often they come."""


@dataclass(frozen=True, slots=True)
class StepRates:
    """How fast one step is now."""

    tasks_per_s: float = 0.0
    items_per_s: float = 0.0
    busy_share: float | None = None
    """Of the time of its dedicated workers, or else of all shared workers; None if there were none."""


@dataclass(frozen=True, slots=True)
class InputProgress:
    """How far a run is in its input, with the blocks of earlier runs and blocks that are being read."""

    read: int
    """Documents."""
    kept: int
    blocks: int
    """Blocks that are done."""
    blocks_total: int
    bytes: int = 0
    """Bytes of the input files; of compressed files their compressed size."""
    bytes_total: int = 0
    """0 where the size of the input is not known."""
    bytes_before: int = 0
    """Bytes that earlier runs have done."""

    @property
    def fraction(self) -> float | None:
        """The share of the bytes of this run that are done; None if it is not known."""
        here = self.bytes_total - self.bytes_before
        if here <= 0:
            return None
        return min(1.0, max(0, self.bytes - self.bytes_before) / here)


@dataclass(frozen=True, slots=True)
class Progress:
    """How far the run is, counted in tasks of the last step."""

    done: int
    total: int | None
    """None if it is not known."""
    exact: bool
    """``total`` is known rather than extrapolated from the fan-out so far."""
    fraction: float | None
    """Of the step that has the smallest; None if it is not known."""


@dataclass(frozen=True, slots=True)
class Rates:
    """All that a view shows in addition to the snapshot."""

    steps: tuple[StepRates, ...]
    progress: Progress
    eta_s: float | None


@dataclass(frozen=True, slots=True)
class _Point:
    """A snapshot, and for each step the worker time seen busy and available up to it."""

    snapshot: Snapshot
    busy_us: tuple[int, ...]
    available_us: tuple[int, ...]


class RateWindow:
    """Remembers the last seconds of a run; each snapshot costs time in proportion to its steps."""

    def __init__(self, window_s: float = WINDOW_S, eta_window_s: float = ETA_WINDOW_S) -> None:
        self._window_us = int(window_s * 1e6)
        self._eta_window_us = int(eta_window_s * 1e6)
        self._past: deque[_Point] = deque()
        self._origin: _Point | None = None
        self._fractions: deque[tuple[int, float]] = deque()
        self._input_done: float | None = None

    def add(self, snapshot: Snapshot, input_done: float | None = None) -> Rates:
        """Add the next snapshot and return the current rates.

        ``input_done`` is the share of the input that is done, if it is known. It also grows within a block, so
        progress and the time left are computed from it.
        """
        point = _next_point(self._past[-1], snapshot) if self._past else _first_point(snapshot)
        if self._origin is None:
            self._origin = point
        self._remember(point)
        self._input_done = input_done
        progress = self._progress(snapshot)
        return Rates(_step_rates(self._past[0], point), progress, self._eta(snapshot, progress.fraction))

    def overall(self) -> Rates:
        """Return the means over all snapshots, for the end of a run."""
        if self._origin is None:
            return Rates((), Progress(0, None, False, None), None)
        last = self._past[-1]
        return Rates(_step_rates(self._origin, last, whole_run=True), self._progress(last.snapshot), None)

    def _progress(self, snapshot: Snapshot) -> Progress:
        progress = progress_of(snapshot)
        return progress if self._input_done is None else replace(progress, fraction=self._input_done)

    def _remember(self, point: _Point) -> None:
        past, now = self._past, point.snapshot.now_us
        # The newest point is replaced, not joined, while it is closer than the spacing to the one before it.
        if len(past) >= 2 and past[-1].snapshot.now_us - past[-2].snapshot.now_us < self._window_us // SPACING:
            past.pop()
        past.append(point)
        while len(past) > 2 and past[1].snapshot.now_us <= now - self._window_us:
            past.popleft()

    def _eta(self, now: Snapshot, fraction: float | None) -> float | None:
        if fraction is None or now.draining:
            self._fractions.clear()
            return None
        past = self._fractions
        # If progress falls (the fan-out turned out larger), the older points have no meaning.
        while past and past[-1][1] > fraction:
            past.pop()
        if not past or now.now_us - past[-1][0] >= self._eta_window_us // SPACING:
            past.append((now.now_us, fraction))
        while len(past) >= 2 and past[1][0] <= now.now_us - self._eta_window_us:
            past.popleft()
        if fraction >= 1.0:
            return 0.0
        if fraction < 0.01:
            return None
        since_us, since = past[0]
        if fraction > since and now.now_us - since_us >= 2_000_000:
            return (1.0 - fraction) * (now.now_us - since_us) / (fraction - since) / 1e6
        # No task ended within the window, because tasks are long: use the whole run.
        return (1.0 - fraction) / fraction * now.now_us / 1e6


def _first_point(snapshot: Snapshot) -> _Point:
    zeros = (0,) * len(snapshot.steps)
    return _Point(snapshot, zeros, zeros)


def _next_point(last: _Point, snapshot: Snapshot) -> _Point:
    """Return ``last`` plus the time since then, in which its snapshot is taken to hold."""
    before = last.snapshot
    us = max(0, snapshot.now_us - before.now_us)
    shared = before.shared_busy + before.shared_idle
    busy = tuple(t + s.busy * us for t, s in zip(last.busy_us, before.steps, strict=True))
    available = tuple(
        t + (s.busy + s.idle if s.dedicated else shared) * us
        for t, s in zip(last.available_us, before.steps, strict=True)
    )
    return _Point(snapshot, busy, available)


def _step_rates(first: _Point, now: _Point, whole_run: bool = False) -> tuple[StepRates, ...]:
    elapsed = now.snapshot.now_us - first.snapshot.now_us
    rates = []
    for i, (before, step) in enumerate(zip(first.snapshot.steps, now.snapshot.steps, strict=True)):
        sampled = now.busy_us[i] - first.busy_us[i]
        available = now.available_us[i] - first.available_us[i]
        # The time of finished tasks is exact if they are short; long tasks add theirs all at once.
        worked = sampled if step.service_us * 4 > elapsed else step.busy_us - before.busy_us
        share = min(1.0, max(0, worked) / available) if available > 0 else None
        if step.busy and step.service_us > elapsed * step.busy // 2 and not whole_run:
            # Too few tasks end within the window to count them; the estimate includes the tasks still running.
            tasks = step.busy * 1e6 / step.service_us
            items = tasks * step.items_done / step.tasks_done if step.tasks_done else 0.0
        else:
            tasks = _per_s(step.tasks_done - before.tasks_done, elapsed)
            items = _per_s(step.items_done - before.items_done, elapsed)
        rates.append(StepRates(tasks, items, share))
    return tuple(rates)


def _per_s(amount: int, us: int) -> float:
    return max(0, amount) * 1e6 / us if us > 0 else 0.0


def progress_of(snapshot: Snapshot) -> Progress:
    """Return the progress of the run.

    The total of a step is the tasks it has received plus those that the steps before it have still to make, at the
    fan-out so far. The total is None while a step with work before it has finished too few tasks for an estimate.
    """
    if not snapshot.steps:
        return Progress(0, None, False, None)
    last = snapshot.steps[-1]
    done = _finished(last)
    if snapshot.source_total is None:
        return Progress(done, None, False, None)
    exact = True
    fraction = 1.0
    total = float(snapshot.source_total)
    for i, step in enumerate(snapshot.steps):
        finished = _finished(step)
        if total > 0:
            fraction = min(fraction, finished / total)
        if i + 1 == len(snapshot.steps):
            break
        to_come = max(0.0, total - finished)
        made = _seen(snapshot.steps[i + 1])
        if to_come == 0 or step.ended:
            total = float(made)
        elif made == finished > 0:
            pass  # one out of each, so far
        elif finished < min(3.0, total / 4) or finished == 0:
            return Progress(done, None, False, None)
        else:
            exact = False
            total = made + to_come * made / finished
    return Progress(done, max(done, round(total)), exact, min(1.0, fraction))


def _finished(step: StepSnapshot) -> int:
    return step.tasks_done + step.tasks_failed


def _seen(step: StepSnapshot) -> int:
    return step.tasks_done + step.tasks_failed + step.queued + step.running
