"""The view for notebooks: an HTML table that is updated in place."""

from __future__ import annotations

from html import escape
from typing import Any

from gristmill.metrics import format as fmt
from gristmill.metrics.lines import line
from gristmill.metrics.table import COLUMNS, MAX_DECISIONS
from gristmill.metrics.view import Ended
from gristmill.metrics.view_state import StateView, ViewState, foremost, headline
from gristmill.secrets import without_secrets

MAX_ROWS = 40
INTERVAL_US = 500_000
"""Each update is a message to the browser, which the kernel's log keeps."""
COLOURS = {"bold red": "#c0392b", "green": "#1e8449", "yellow": "#b7950b", "dim": "#888"}


class NotebookView(StateView):
    """Updates one output, which stays with the cell when the run has ended."""

    def __init__(self) -> None:
        try:
            from IPython.display import display
        except ModuleNotFoundError as error:
            raise ValueError("view 'notebook' needs IPython; choose 'lines' or 'auto' outside a notebook") from error
        super().__init__()
        self._display: Any = display
        self._handle: Any = None
        self._next_us = 0

    def show(self, state: ViewState) -> None:
        if state.snapshot.now_us >= self._next_us:
            self._next_us = state.snapshot.now_us + INTERVAL_US
            self._show(state)

    def message(self, text: str) -> None:
        self._display({"text/plain": "gristmill: " + fmt.clean(without_secrets(text))}, raw=True)

    def close(self, record: Ended | None) -> None:
        state = self.final_state(record)
        if state is not None:
            self._show(state)

    def _show(self, state: ViewState) -> None:
        data = {"text/html": html(state), "text/plain": line(state)}
        if self._handle is None:
            self._handle = self._display(data, raw=True, display_id=True)
        else:
            self._handle.update(data, raw=True)


def html(state: ViewState) -> str:
    """Return the table as HTML without scripts, which notebooks that are not trusted show too."""
    snapshot = state.snapshot
    head = "<th style='text-align:left'>step</th>" + "".join(f"<th>{escape(c.title)}</th>" for c in COLUMNS)
    rows = []
    shown = foremost(snapshot, MAX_ROWS)
    for i in shown:
        step, rates = snapshot.steps[i], state.rates.steps[i]
        limits = i == snapshot.bottleneck and not state.ending
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
    memory = _meter("memory", state.memory_bytes, state.memory_limit)
    parts = [
        f"<div><b>gristmill</b> {escape(' · '.join(headline(state)))}</div>",
        f"<div>{flight} &emsp; {memory}</div>",
    ]
    if any(not step.dedicated for step in snapshot.steps):
        parts.append(
            f"<div>shared workers: {snapshot.shared_busy} busy, {snapshot.shared_idle} idle, "
            f"{snapshot.shared_starting} starting</div>"
        )
    if snapshot.draining and not state.ending:
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
