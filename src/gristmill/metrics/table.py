"""The live table as lines of styled text, drawn for a given size without a terminal."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from typing import NamedTuple

from gristmill.metrics import format as fmt
from gristmill.metrics.format import UNICODE, Glyphs
from gristmill.metrics.rates import StepRates
from gristmill.metrics.view_state import ViewState, documents, foremost, headline
from gristmill.scheduling.snapshot import StepSnapshot

MAX_DECISIONS = 5


class Span(NamedTuple):
    """Text in one style, named as in rich."""

    text: str
    style: str = ""


Line = list[Span]


class Column(NamedTuple):
    title: str
    width: int
    cell: Callable[[StepSnapshot, StepRates], Span]
    from_columns: int
    """The least width of a terminal that shows the column."""


def _workers(step: StepSnapshot, rates: StepRates) -> Span:
    if not step.dedicated:
        return Span(f"{step.busy} shared", "" if step.busy else "dim")
    style = "yellow" if step.starting else "" if step.busy else "dim"
    return Span(f"{step.busy}/{step.idle}/{step.starting}", style)


def _busy(step: StepSnapshot, rates: StepRates) -> Span:
    if rates.busy_share is None:
        return Span("-", "dim")
    return Span(fmt.percent(rates.busy_share), "green" if rates.busy_share >= 0.9 else "")


def _number(text: str, zero: bool) -> Span:
    return Span(text, "dim" if zero else "")


COLUMNS = (
    Column("busy/idle/new", 13, _workers, 48),
    Column("queue", 6, lambda s, r: _number(fmt.count(s.queued), s.queued == 0), 0),
    Column("bytes", 6, lambda s, r: _number(fmt.size(s.queued_bytes), s.queued_bytes == 0), 70),
    Column("tasks/s", 7, lambda s, r: _number(fmt.rate(r.tasks_per_s), r.tasks_per_s == 0), 0),
    Column("items/s", 7, lambda s, r: _number(fmt.rate(r.items_per_s), r.items_per_s == 0), 70),
    Column("busy", 4, _busy, 40),
    Column("errors", 6, lambda s, r: Span(fmt.count(s.tasks_failed), "bold red" if s.tasks_failed else "dim"), 60),
    Column("done", 7, lambda s, r: _number(fmt.count(s.tasks_done), s.tasks_done == 0), 100),
    Column(
        "task takes", 10, lambda s, r: Span(fmt.span(s.service_us / 1e6), "") if s.service_us else Span("-", "dim"), 110
    ),
)
MIN_NAME, MAX_NAME = 8, 48


def draw(state: ViewState, columns: int, rows: int, glyphs: Glyphs = UNICODE) -> list[Line]:
    """Return the table, at most ``columns`` wide and ``rows`` high."""
    snapshot = state.snapshot
    columns = max(columns, 20)
    top = [_header(state, glyphs), *_documents(state, glyphs), *_memory(state, columns, glyphs), *_gpus(state)]
    if any(not step.dedicated for step in snapshot.steps):
        top.append(
            [
                Span("shared workers  ", "dim"),
                Span(f"{snapshot.shared_busy} busy, {snapshot.shared_idle} idle"),
                Span(f", {snapshot.shared_starting} starting" if snapshot.shared_starting else "", "yellow"),
            ]
        )
    notice: list[Line] = []
    if snapshot.draining and not state.ending:
        text = "draining: a task has failed, so the run finishes what it has begun and takes nothing new"
        notice = [[Span(text, "bold red")]]
    # The rows for steps and decisions: the table has a header and, if there are enough rows, an empty line before it.
    left = max(rows - len(top) - len(notice) - 2, 1)
    spacious = left >= 8
    decisions = _decisions(state, columns, 0 if not spacious else 3 if left < 14 else 6, glyphs)
    lines = [*top]
    if spacious:
        lines.append([])
    lines += _table(state, columns, max(1, left - (2 if spacious else 0) - len(decisions)), glyphs)
    if decisions:
        lines += [[], *decisions]
    return [_clip(line, columns, glyphs) for line in (lines + notice)[: max(rows, 1)]]


def _decisions(state: ViewState, columns: int, rows: int, glyphs: Glyphs) -> list[Line]:
    """Return the latest decisions in at most ``rows`` lines, each in at most two."""
    lines: list[Line] = []
    for decision in reversed(state.snapshot.decisions[-MAX_DECISIONS:]):
        at = f"{fmt.clock(decision.at_us / 1e6):>7}  "
        # One decision never takes more than a few lines, so only the start of a very long text is wrapped.
        parts = textwrap.wrap(
            fmt.clean(decision.text)[:1000], max(10, columns - len(at)), max_lines=2, placeholder=glyphs.ellipsis
        ) or [""]
        if len(lines) + len(parts) > rows:
            break
        lines = [[Span(at if i == 0 else " " * len(at), "dim"), Span(part)] for i, part in enumerate(parts)] + lines
    return lines


def _header(state: ViewState, glyphs: Glyphs) -> Line:
    spans = [Span("gristmill", "bold"), Span("  ")]
    for i, part in enumerate(headline(state, glyphs)):
        spans += [Span(f" {glyphs.dot} ", "dim"), Span(part)] if i else [Span(part)]
    return spans


def _documents(state: ViewState, glyphs: Glyphs) -> list[Line]:
    parts = documents(state)
    return [[Span("input      ", "dim"), Span(f" {glyphs.dot} ".join(parts))]] if parts else []


def _memory(state: ViewState, columns: int, glyphs: Glyphs) -> list[Line]:
    """Return the bytes in flight and the memory of the processes with their limits, side by side on a wide terminal."""
    snapshot = state.snapshot
    side_by_side = columns >= 96
    bar = 20 if columns >= 60 else 8
    flight = [Span("in flight  ", "dim")]
    held, reserved, budget = snapshot.held_bytes, snapshot.reserved_bytes, snapshot.budget_bytes
    if budget > 0:
        flight += [*_bar(held, reserved, budget, bar, glyphs), Span("  ")]
    flight.append(Span(_of(held + reserved, budget)))
    memory = [Span("memory  ", "dim") if side_by_side else Span("memory     ", "dim")]
    if state.memory_limit > 0:
        memory += [*_bar(state.memory_bytes, 0, state.memory_limit, bar, glyphs), Span("  ")]
    memory.append(Span(_of(state.memory_bytes, state.memory_limit)))
    if side_by_side:
        gap = max(3, columns // 2 - _width(flight))
        return [[*flight, Span(" " * gap), *memory]]
    return [flight, memory]


def _gpus(state: ViewState) -> list[Line]:
    """Return a line for each GPU that could be measured: how busy it is, its memory, its power, and its workers."""
    steps = state.snapshot.steps
    lines: list[Line] = []
    for gpu in state.snapshot.gpus:
        by_step: dict[str, list[int]] = {}
        for worker in gpu.workers:
            name = fmt.clean(steps[worker.step].name) if 0 <= worker.step < len(steps) else "other"
            by_step.setdefault(name, []).append(worker.memory_bytes)
        held = [f"{name} {len(sizes)} x {fmt.size(max(sizes))}" for name, sizes in by_step.items()]
        style = "green" if gpu.busy_percent >= 90 else ""
        line = [Span(f"gpu {gpu.index}".ljust(11), "dim"), Span(f"{gpu.busy_percent} % busy", style)]
        line.append(Span(f", {_of(gpu.memory_bytes, gpu.memory_total)}, {gpu.watts:.0f} W"))
        lines.append([*line, Span(f"  {', '.join(held)}", "dim")] if held else line)
    return lines


def _of(used: int, limit: int) -> str:
    return f"{fmt.size(used)} of {fmt.size(limit)}" if limit > 0 else fmt.size(used)


def _bar(solid: int, soft: int, limit: int, columns: int, glyphs: Glyphs) -> Line:
    """Return a bar with ``solid`` of ``limit`` filled, and ``soft`` more marked as reserved."""
    filled = min(columns, round(columns * solid / limit))
    reserved_to = min(columns, max(filled, round(columns * (solid + soft) / limit)))
    share = (solid + soft) / limit
    style = "red" if share > 0.95 else "yellow" if share > 0.8 else "green"
    return [
        Span(glyphs.full * filled, style),
        Span(glyphs.held * (reserved_to - filled), style),
        Span(glyphs.empty * (columns - reserved_to), "dim"),
    ]


def _table(state: ViewState, columns: int, rows: int, glyphs: Glyphs) -> list[Line]:
    steps = state.snapshot.steps
    shown = [c for c in COLUMNS if columns >= c.from_columns]
    # The names take the columns that are left: a mark and a space before them, two spaces before each column.
    left = columns - 2 - sum(c.width + 2 for c in shown)
    names = {i: fmt.clean(steps[i].name) for i in foremost(state.snapshot, rows)}
    wanted = max((fmt.width(name) for name in names.values()), default=0)
    name_width = max(MIN_NAME, min(left, MAX_NAME, max(wanted, MIN_NAME)))
    lines: list[Line] = [[Span("  " + "step".ljust(name_width), "bold dim")]]
    for column in shown:
        lines[0].append(Span("  " + column.title.rjust(column.width), "bold dim"))
    for i, full_name in names.items():
        step, rates = steps[i], state.rates.steps[i]
        limits = i == state.snapshot.bottleneck and not state.ending
        style = "bold" if limits else "dim" if step.ended else ""
        name = fmt.shorten(full_name, name_width, glyphs.ellipsis)
        line = [Span(glyphs.bottleneck + " " if limits else "  ", "bold yellow")]
        line.append(Span(name + " " * (name_width - fmt.width(name)), style))
        for column in shown:
            text, cell_style = column.cell(step, rates)
            line += [Span("  "), Span(text.rjust(column.width), "dim" if step.ended and not cell_style else cell_style)]
        lines.append(line)
    hidden = len(steps) - len(names)
    if hidden:
        # The hidden steps change from one update to the next, so only their number is shown.
        lines.append([Span(f"  {glyphs.ellipsis} and {hidden:,} more steps", "dim")])
    return lines


def _width(line: Line) -> int:
    return sum(fmt.width(span.text) for span in line)


def _clip(line: Line, columns: int, glyphs: Glyphs) -> Line:
    """Return the line, cut to ``columns``."""
    left = columns
    clipped: Line = []
    for span in line:
        wide = fmt.width(span.text)
        if wide > left:
            clipped.append(Span(fmt.cut(span.text, left, glyphs.ellipsis), span.style))
            break
        clipped.append(span)
        left -= wide
    return clipped
