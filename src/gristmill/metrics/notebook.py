"""The view for notebooks: an HTML table that is updated in place."""

from __future__ import annotations

from html import escape
from typing import Any

from gristmill.metrics import format as fmt
from gristmill.metrics.lines import line
from gristmill.metrics.progress import InputProgress
from gristmill.metrics.rates import RateWindow
from gristmill.metrics.table import COLUMNS, MAX_DECISIONS, Frame, foremost, frame_of, headline
from gristmill.metrics.view import Ended, ending
from gristmill.scheduling.snapshot import Snapshot
from gristmill.secrets import without_secrets

MAX_ROWS = 40
INTERVAL_US = 500_000
"""Each update is a message to the browser, which the kernel's log keeps."""
COLOURS = {"bold red": "#c0392b", "green": "#1e8449", "yellow": "#b7950b", "dim": "#888"}


class NotebookView:
    """Shows one output that changes; it stays with the cell when the run has ended."""

    def __init__(self) -> None:
        try:
            from IPython.display import display
        except ModuleNotFoundError as error:
            raise ValueError("view 'notebook' needs IPython; choose 'lines' or 'auto' outside a notebook") from error
        self._display: Any = display
        self._handle: Any = None
        self._window = RateWindow()
        self._frame: Frame | None = None
        self._next_us = 0

    def update(
        self, snapshot: Snapshot, memory_bytes: int, memory_limit: int, progress: InputProgress | None = None
    ) -> None:
        self._frame = frame_of(self._window, snapshot, memory_bytes, memory_limit, progress)
        if snapshot.now_us >= self._next_us:
            self._next_us = snapshot.now_us + INTERVAL_US
            self._show(self._frame)

    def message(self, text: str) -> None:
        self._display({"text/plain": "gristmill: " + fmt.clean(without_secrets(text))}, raw=True)

    def close(self, record: Ended | None) -> None:
        if self._frame is None:
            return
        self._show(self._frame.ended(self._window.overall(), ending(record)))

    def _show(self, frame: Frame) -> None:
        data = {"text/html": html(frame), "text/plain": line(frame)}
        if self._handle is None:
            self._handle = self._display(data, raw=True, display_id=True)
        else:
            self._handle.update(data, raw=True)


def html(frame: Frame) -> str:
    """The table as HTML without scripts, so that it is shown in a notebook that is not trusted too."""
    snapshot = frame.snapshot
    head = "<th style='text-align:left'>step</th>" + "".join(f"<th>{escape(c.title)}</th>" for c in COLUMNS)
    rows = []
    shown = foremost(snapshot, MAX_ROWS)
    for i in shown:
        step, rates = snapshot.steps[i], frame.rates.steps[i]
        limits = i == snapshot.bottleneck and not frame.ending
        name = escape(fmt.shorten(fmt.clean(step.name), 60))
        cells = [f"<td style='text-align:left'>{f'<b>&#9654; {name}</b>' if limits else name}</td>"]
        for column in COLUMNS:
            text, style = column.cell(step, rates)
            colour = f" style='color:{COLOURS[style]}'" if style in COLOURS else ""
            cells.append(f"<td{colour}>{escape(text)}</td>")
        rows.append(f"<tr>{''.join(cells)}</tr>")
    if len(shown) < len(snapshot.steps):
        more = len(snapshot.steps) - len(shown)
        rows.append(f"<tr><td style='text-align:left'>… and {more:,} more steps</td></tr>")
    flight = _meter("in flight", snapshot.held_bytes + snapshot.reserved_bytes, snapshot.budget_bytes)
    memory = _meter("memory", frame.memory_bytes, frame.memory_limit)
    parts = [
        f"<div><b>gristmill</b> {escape(' · '.join(headline(frame)))}</div>",
        f"<div>{flight} &emsp; {memory}</div>",
    ]
    if any(not step.dedicated for step in snapshot.steps):
        parts.append(
            f"<div>shared workers: {snapshot.shared_busy} busy, {snapshot.shared_idle} idle, "
            f"{snapshot.shared_starting} starting</div>"
        )
    if snapshot.draining and not frame.ending:
        parts.append("<div style='color:#c0392b'><b>draining</b>: a task has failed; nothing new is taken</div>")
    parts.append(f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>")
    for decision in snapshot.decisions[-MAX_DECISIONS:]:
        at = fmt.clock(decision.at_us / 1e6)
        parts.append(f"<div><span style='color:#888'>{at}</span> {escape(fmt.clean(decision.text))}</div>")
    return f"<div style='font-variant-numeric:tabular-nums'>{''.join(parts)}</div>"


def _meter(name: str, used: int, limit: int) -> str:
    if limit <= 0:
        return f"{name} {fmt.size(used)}"
    return (
        f"{name} <meter min='0' max='{limit}' value='{min(used, limit)}' high='{limit * 4 // 5}'></meter> "
        f"{fmt.size(used)} of {fmt.size(limit)}"
    )
