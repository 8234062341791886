"""The view for logs: one line now and then."""

from __future__ import annotations

from typing import TextIO

from gristmill.metrics import format as fmt
from gristmill.metrics.rates import RateWindow
from gristmill.metrics.table import ASCII, Frame, foremost, headline
from gristmill.metrics.view import Ended, ending
from gristmill.scheduling.snapshot import Snapshot
from gristmill.secrets import without_secrets

MAX_STEPS = 8


class LinesView:
    """Writes a line every ``interval_s`` seconds of the run, and one at its end.

    Plain text on the stream rather than the logging module, so that it is seen without any setup.
    """

    def __init__(self, stream: TextIO, interval_s: float) -> None:
        self._stream: TextIO | None = stream
        self._interval_us = int(max(interval_s, 0.0) * 1e6)
        self._next_us = self._interval_us
        self._window = RateWindow()
        self._last: Frame | None = None
        self._told_us = -1

    def update(self, snapshot: Snapshot, memory_bytes: int, memory_limit: int) -> None:
        self._last = Frame(snapshot, self._window.add(snapshot), memory_bytes, memory_limit)
        if snapshot.now_us >= self._next_us:
            self._next_us = snapshot.now_us + self._interval_us
            self._write(line(self._last, self._told_us))
            if snapshot.decisions:
                self._told_us = snapshot.decisions[-1].at_us

    def message(self, text: str) -> None:
        self._write("gristmill: " + "\n".join(map(fmt.clean, without_secrets(text).splitlines())))

    def close(self, record: Ended | None) -> None:
        if self._last is None:
            self._write("gristmill: " + ending(record))
        else:
            self._write(line(self._last.ended(self._window.overall(), ending(record)), self._told_us))
        self._stream = None

    def _write(self, text: str) -> None:
        if self._stream is None:
            return
        encoding = getattr(self._stream, "encoding", None) or "utf-8"
        try:
            self._stream.write(text.encode(encoding, "backslashreplace").decode(encoding) + "\n")
            self._stream.flush()
        except (OSError, ValueError):  # closed or gone: the run goes on unseen
            self._stream = None


def line(frame: Frame, told_us: int) -> str:
    """The whole run in one line, with the last decision if it was made after ``told_us``."""
    snapshot = frame.snapshot
    parts = ["gristmill " + ", ".join(headline(frame, ASCII))]
    if snapshot.draining and not frame.ending:
        parts.append("draining after a failure")
    shown = foremost(snapshot, MAX_STEPS)
    for i in shown:
        step, rates = snapshot.steps[i], frame.rates.steps[i]
        if frame.ending:
            text = f"{fmt.clean(step.name)} {step.tasks_done:,} done"
        else:
            workers = f"{step.busy}/{step.busy + step.idle} busy" if step.dedicated else f"{step.busy} busy"
            starting = f" +{step.starting}" if step.starting else ""
            mark = "*" if i == snapshot.bottleneck else ""
            share = f" {fmt.percent(rates.busy_share)}" if rates.busy_share is not None else ""
            text = (
                f"{mark}{fmt.clean(step.name)} {workers}{starting}{share}, {fmt.count(step.queued)} queued, "
                f"{fmt.rate(rates.tasks_per_s)} tasks/s, {fmt.rate(rates.items_per_s)} items/s"
            )
        parts.append(text + (f", {step.tasks_failed:,} failed" if step.tasks_failed else ""))
    if len(shown) < len(snapshot.steps):
        parts.append(f"{len(snapshot.steps) - len(shown):,} more steps")
    budget = f"/{fmt.size(snapshot.budget_bytes)}" if snapshot.budget_bytes else ""
    limit = f"/{fmt.size(frame.memory_limit)}" if frame.memory_limit else ""
    flight = fmt.size(snapshot.held_bytes + snapshot.reserved_bytes)
    parts.append(f"in flight {flight}{budget}, memory {fmt.size(frame.memory_bytes)}{limit}")
    if snapshot.decisions and snapshot.decisions[-1].at_us > told_us and not frame.ending:
        parts.append("balancer: " + fmt.clean(snapshot.decisions[-1].text))
    return " | ".join(parts)
