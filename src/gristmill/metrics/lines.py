"""The view for logs: one line at an interval."""

from __future__ import annotations

import os
import textwrap
from typing import TextIO

from gristmill.metrics import format as fmt
from gristmill.metrics.format import ASCII
from gristmill.metrics.view import Ended, ending, is_terminal
from gristmill.metrics.view_state import StateView, ViewState, documents, foremost, headline
from gristmill.scheduling.snapshot import Snapshot
from gristmill.secrets import without_secrets

MAX_STEPS = 8
MOST_NAME = 32
FIRST_US = 5_000_000
"""The time of the first line: early, to show that the run works."""
COLUMNS = 120
"""The width of a line if the stream is no terminal and COLUMNS is not set."""


class LinesView(StateView):
    """Writes a line after 5 seconds, one every ``interval_s`` seconds of the run, and one at its end.

    Plain text on the stream rather than the logging module, so that it is seen without any setup.
    """

    def __init__(self, stream: TextIO, interval_s: float) -> None:
        super().__init__()
        self._stream: TextIO | None = stream
        self._interval_us = int(max(interval_s, 0.0) * 1e6)
        self._next_us = min(FIRST_US, self._interval_us)
        self._decision_us = -1
        """The time of the last decision that was written."""

    def show(self, state: ViewState) -> None:
        snapshot = state.snapshot
        if snapshot.now_us >= self._next_us:
            self._next_us = _next(snapshot.now_us, self._interval_us)
            self._write(line(state, columns_of(self._stream)))
            self._write_decision(snapshot)

    def _write_decision(self, snapshot: Snapshot) -> None:
        """Write the last decision of the balancer, if it was not written before."""
        if snapshot.decisions and snapshot.decisions[-1].at_us > self._decision_us:
            self._decision_us = snapshot.decisions[-1].at_us
            text = "gristmill: balancer: " + fmt.clean(snapshot.decisions[-1].text)
            self._write(fmt.cut(text, columns_of(self._stream), ASCII.ellipsis))

    def message(self, text: str) -> None:
        lines = ("gristmill: " + "\n".join(map(fmt.clean, without_secrets(text).splitlines()))).splitlines()
        if is_terminal(self._stream):
            lines = [part for line in lines for part in textwrap.wrap(line, columns_of(self._stream)) or [""]]
        self._write("\n".join(lines))

    def close(self, record: Ended | None) -> None:
        state = self.final_state(record)
        self._write(line(state, columns_of(self._stream)) if state else "gristmill: " + ending(record))
        self._stream = None

    def _write(self, text: str) -> None:
        if self._stream is None:
            return
        encoding = fmt.encoding_of(self._stream)
        try:
            self._stream.write(text.encode(encoding, "backslashreplace").decode(encoding) + "\n")
            self._stream.flush()
        except (OSError, ValueError):  # closed or gone: the run continues without a view
            self._stream = None


def columns_of(stream: TextIO | None) -> int:
    """Return the width of a line: that of the terminal, else COLUMNS, else 120."""
    if stream is not None and is_terminal(stream):
        try:
            return os.get_terminal_size(stream.fileno()).columns or COLUMNS
        except (OSError, ValueError):  # it has no descriptor
            pass
    text = os.environ.get("COLUMNS", "")
    return int(text) if text.isdecimal() and int(text) >= 20 else COLUMNS


def _next(now_us: int, interval_us: int) -> int:
    """Return the time of the next line: a multiple of the interval."""
    return now_us if interval_us <= 0 else (now_us // interval_us + 1) * interval_us


def line(state: ViewState, columns: int = COLUMNS) -> str:
    """Return the run in one line of at most ``columns``, without the least important parts if they do not fit."""
    snapshot = state.snapshot
    shown = fmt.cut("gristmill " + ", ".join(headline(state, ASCII)), columns, ASCII.ellipsis)
    parts: list[str] = []
    if counts := documents(state):
        whole = ", ".join(counts[:2])
        fits = fmt.width(shown) + 3 + fmt.width(whole) <= columns
        parts += [whole if fits else whole.replace(" documents", ""), *counts[2:]]
    if snapshot.draining and not state.ending:
        parts.append("draining after a failure")
    if any(step.tasks_failed for step in snapshot.steps):
        parts.append(f"{sum(step.tasks_failed for step in snapshot.steps):,} failed")
    limit = f"/{fmt.size(state.memory_limit)}" if state.memory_limit else ""
    steps = _steps(state)
    parts += [*steps[:1], f"memory {fmt.size(state.memory_bytes)}{limit}", *steps[1:]]
    budget = f"/{fmt.size(snapshot.budget_bytes)}" if snapshot.budget_bytes else ""
    parts.append(f"in flight {fmt.size(snapshot.held_bytes + snapshot.reserved_bytes)}{budget}")
    for part in parts:
        if fmt.width(shown) + 3 + fmt.width(part) <= columns:
            shown += f" | {part}"
    return shown


def _steps(state: ViewState) -> list[str]:
    """Return the steps in words, the one that limits throughput first."""
    shown = sorted(foremost(state.snapshot, MAX_STEPS), key=lambda i: i != state.snapshot.bottleneck)
    return [_step(state, i) for i in shown]


def _step(state: ViewState, i: int) -> str:
    step, rates = state.snapshot.steps[i], state.rates.steps[i]
    if state.ending:
        return f"{fmt.clean(step.name)} {step.tasks_done:,} done"
    workers = f"{step.busy}/{step.busy + step.idle} busy" if step.dedicated else f"{step.busy} busy"
    starting = f" +{step.starting}" if step.starting else ""
    mark = "*" if i == state.snapshot.bottleneck else ""
    share = f" {fmt.percent(rates.busy_share)}" if rates.busy_share is not None else ""
    return (
        f"{mark}{fmt.shorten(fmt.clean(step.name), MOST_NAME, ASCII.ellipsis)} {workers}{starting}{share}, "
        f"{fmt.count(step.queued)} queued, {fmt.rate(rates.tasks_per_s)} tasks/s, {fmt.rate(rates.items_per_s)} items/s"
    )
