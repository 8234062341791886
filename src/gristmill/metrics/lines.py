"""The view for logs: one line now and then."""

from __future__ import annotations

import os
import textwrap
from typing import TextIO

from gristmill.metrics import format as fmt
from gristmill.metrics.progress import InputProgress
from gristmill.metrics.rates import RateWindow
from gristmill.metrics.table import ASCII, Frame, documents, foremost, frame_of, headline
from gristmill.metrics.view import Ended, ending
from gristmill.scheduling.snapshot import Snapshot
from gristmill.secrets import without_secrets

MAX_STEPS = 8
MOST_NAME = 32
FIRST_US = 5_000_000
"""When the first line is written: soon enough to see that the run does what it should."""
COLUMNS = 120
"""The width of a line where the stream is no terminal and COLUMNS is not set."""


class LinesView:
    """Writes a line after 5 seconds, one every ``interval_s`` seconds of the run, and one at its end.

    Plain text on the stream rather than the logging module, so that it is seen without any setup.
    """

    def __init__(self, stream: TextIO, interval_s: float) -> None:
        self._stream: TextIO | None = stream
        self._interval_us = int(max(interval_s, 0.0) * 1e6)
        self._next_us = min(FIRST_US, self._interval_us)
        self._window = RateWindow()
        self._last: Frame | None = None
        self._told_us = -1

    def update(
        self, snapshot: Snapshot, memory_bytes: int, memory_limit: int, progress: InputProgress | None = None
    ) -> None:
        self._last = frame_of(self._window, snapshot, memory_bytes, memory_limit, progress)
        if snapshot.now_us >= self._next_us:
            self._next_us = _next(snapshot.now_us, self._interval_us)
            self._write(line(self._last, columns_of(self._stream)))
            self._tell_decision(snapshot)

    def _tell_decision(self, snapshot: Snapshot) -> None:
        """The last decision of the balancer, if it was not told before."""
        if snapshot.decisions and snapshot.decisions[-1].at_us > self._told_us:
            self._told_us = snapshot.decisions[-1].at_us
            text = "gristmill: balancer: " + fmt.clean(snapshot.decisions[-1].text)
            self._write(fmt.cut(text, columns_of(self._stream), ASCII.ellipsis))

    def message(self, text: str) -> None:
        lines = ("gristmill: " + "\n".join(map(fmt.clean, without_secrets(text).splitlines()))).splitlines()
        if self._stream is not None and is_terminal(self._stream):
            lines = [part for line in lines for part in textwrap.wrap(line, columns_of(self._stream)) or [""]]
        self._write("\n".join(lines))

    def close(self, record: Ended | None) -> None:
        if self._last is None:
            self._write("gristmill: " + ending(record))
        else:
            self._write(line(self._last.ended(self._window.overall(), ending(record)), columns_of(self._stream)))
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


def is_terminal(stream: TextIO) -> bool:
    try:
        return stream.isatty()
    except ValueError:  # closed
        return False


def columns_of(stream: TextIO | None) -> int:
    """The width that a line may have: of a terminal its own, else COLUMNS, else 120."""
    if stream is not None and is_terminal(stream):
        try:
            return os.get_terminal_size(stream.fileno()).columns or COLUMNS
        except (OSError, ValueError):  # it has no descriptor
            pass
    told = os.environ.get("COLUMNS", "")
    return int(told) if told.isdecimal() and int(told) >= 20 else COLUMNS


def _next(now_us: int, interval_us: int) -> int:
    """When the next line is due: at a multiple of the interval."""
    return now_us if interval_us <= 0 else (now_us // interval_us + 1) * interval_us


def line(frame: Frame, columns: int = COLUMNS) -> str:
    """The whole run in one line of at most ``columns``: what does not fit is left out, the least important first."""
    snapshot = frame.snapshot
    shown = fmt.cut("gristmill " + ", ".join(headline(frame, ASCII)), columns, ASCII.ellipsis)
    parts: list[str] = []
    if told := documents(frame):
        whole = ", ".join(told[:2])
        fits = fmt.width(shown) + 3 + fmt.width(whole) <= columns
        parts += [whole if fits else whole.replace(" documents", ""), *told[2:]]
    if snapshot.draining and not frame.ending:
        parts.append("draining after a failure")
    if any(step.tasks_failed for step in snapshot.steps):
        parts.append(f"{sum(step.tasks_failed for step in snapshot.steps):,} failed")
    limit = f"/{fmt.size(frame.memory_limit)}" if frame.memory_limit else ""
    steps = _steps(frame)
    parts += [*steps[:1], f"memory {fmt.size(frame.memory_bytes)}{limit}", *steps[1:]]
    budget = f"/{fmt.size(snapshot.budget_bytes)}" if snapshot.budget_bytes else ""
    parts.append(f"in flight {fmt.size(snapshot.held_bytes + snapshot.reserved_bytes)}{budget}")
    for part in parts:
        if fmt.width(shown) + 3 + fmt.width(part) <= columns:
            shown += f" | {part}"
    return shown


def _steps(frame: Frame) -> list[str]:
    """The steps in words, the one that limits throughput first."""
    snapshot = frame.snapshot
    shown = sorted(foremost(snapshot, MAX_STEPS), key=lambda i: i != snapshot.bottleneck)
    return [_step(frame, i) for i in shown]


def _step(frame: Frame, i: int) -> str:
    step, rates = frame.snapshot.steps[i], frame.rates.steps[i]
    if frame.ending:
        return f"{fmt.clean(step.name)} {step.tasks_done:,} done"
    workers = f"{step.busy}/{step.busy + step.idle} busy" if step.dedicated else f"{step.busy} busy"
    starting = f" +{step.starting}" if step.starting else ""
    mark = "*" if i == frame.snapshot.bottleneck else ""
    share = f" {fmt.percent(rates.busy_share)}" if rates.busy_share is not None else ""
    return (
        f"{mark}{fmt.shorten(fmt.clean(step.name), MOST_NAME, ASCII.ellipsis)} {workers}{starting}{share}, "
        f"{fmt.count(step.queued)} queued, {fmt.rate(rates.tasks_per_s)} tasks/s, {fmt.rate(rates.items_per_s)} items/s"
    )
