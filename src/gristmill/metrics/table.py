"""The live table as lines of styled text: from numbers to a picture of a given size, without a terminal."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

from gristmill.metrics import format as fmt
from gristmill.metrics.progress import InputProgress
from gristmill.metrics.rates import Rates, RateWindow, StepRates
from gristmill.scheduling.snapshot import Snapshot, StepSnapshot

MAX_DECISIONS = 5


class Span(NamedTuple):
    """Text in one style; the styles are names that rich knows."""

    text: str
    style: str = ""


Line = list[Span]


class Glyphs(NamedTuple):
    """The few signs beyond ASCII, and what stands for them where they cannot be shown."""

    full: str = "█"
    held: str = "▒"
    empty: str = "░"
    bottleneck: str = "▶"
    ellipsis: str = "…"
    dot: str = "·"
    about: str = "≈"


UNICODE = Glyphs()
ASCII = Glyphs(full="#", held="+", empty=".", bottleneck=">", ellipsis="~", dot="|", about="~")


@dataclass(frozen=True, slots=True)
class Frame:
    """All that one picture shows."""

    snapshot: Snapshot
    rates: Rates
    memory_bytes: int
    memory_limit: int
    ending: str = ""
    """How the run ended; empty while it runs."""
    progress: InputProgress | None = None
    """None for a pipeline that does not begin with a reader."""

    def ended(self, overall: Rates, how: str) -> Frame:
        """The last picture: means over the whole run."""
        return replace(self, rates=overall, ending=how)


def frame_of(
    window: RateWindow, snapshot: Snapshot, memory_bytes: int, memory_limit: int, progress: InputProgress | None
) -> Frame:
    """The picture of this moment, with the rates of a window that it is added to."""
    rates = window.add(snapshot, None if progress is None else progress.fraction)
    return Frame(snapshot, rates, memory_bytes, memory_limit, progress=progress)


class Column(NamedTuple):
    title: str
    width: int
    cell: Callable[[StepSnapshot, StepRates], Span]
    from_columns: int
    """Shown where the terminal is at least this wide."""


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


def headline(frame: Frame, glyphs: Glyphs = UNICODE) -> list[str]:
    """Time, progress and what is left, in parts."""
    snapshot, progress = frame.snapshot, frame.rates.progress
    parts = [fmt.clock(snapshot.now_us / 1e6)]
    if frame.progress is not None:
        share = f" ({fmt.percent(progress.fraction)})" if progress.fraction is not None else ""
        parts.append(f"{frame.progress.blocks:,}/{frame.progress.blocks_total:,} blocks{share}")
    elif progress.total is None:
        parts.append(f"{progress.done:,} tasks")
    else:
        share = f" ({fmt.percent(progress.fraction)})" if progress.fraction is not None else ""
        parts.append(f"{progress.done:,}/{'' if progress.exact else glyphs.about}{progress.total:,} tasks{share}")
    if frame.progress is None and (snapshot.source_total is None or progress.total is None):
        of = f"/{snapshot.source_total:,}" if snapshot.source_total is not None else ""
        parts.append(f"{snapshot.source_taken:,}{of} taken from the source")
    if frame.ending:
        parts.append(frame.ending)
    elif frame.rates.eta_s is not None:
        parts.append(f"{fmt.clock(frame.rates.eta_s)} left")
    return parts


def documents(frame: Frame) -> list[str]:
    """Documents and bytes of the input so far, in parts; none for a pipeline that does not begin with a reader."""
    progress = frame.progress
    if progress is None:
        return []
    parts = [f"{progress.read:,} documents read", f"{progress.kept:,} kept"]
    if progress.bytes_total:
        parts.append(f"{fmt.size(progress.bytes)} of {fmt.size(progress.bytes_total)}")
    return parts


def draw(frame: Frame, columns: int, rows: int, glyphs: Glyphs = UNICODE) -> list[Line]:
    """The picture, at most ``columns`` wide and ``rows`` high."""
    snapshot = frame.snapshot
    columns = max(columns, 20)
    top = [_header(frame, columns, glyphs), *_documents(frame, columns, glyphs), *_memory(frame, columns, glyphs)]
    if any(not step.dedicated for step in snapshot.steps):
        top.append(
            _clip(
                [
                    Span("shared workers  ", "dim"),
                    Span(f"{snapshot.shared_busy} busy, {snapshot.shared_idle} idle"),
                    Span(f", {snapshot.shared_starting} starting" if snapshot.shared_starting else "", "yellow"),
                ],
                columns,
                glyphs,
            )
        )
    notice: list[Line] = []
    if snapshot.draining and not frame.ending:
        text = "draining: a task has failed, so the run finishes what it has begun and takes nothing new"
        notice = [_clip([Span(text, "bold red")], columns, glyphs)]
    # What is left for steps and decisions: the table has a header and, where there is room, a line round it.
    room = max(rows - len(top) - len(notice) - 2, 1)
    roomy = room >= 8
    decisions = _decisions(frame, columns, 0 if not roomy else 3 if room < 14 else 6, glyphs)
    lines = [*top]
    if roomy:
        lines.append([])
    lines += _table(frame, columns, max(1, room - (2 if roomy else 0) - len(decisions)), glyphs)
    if decisions:
        lines += [[], *decisions]
    return (lines + notice)[: max(rows, 1)]


def _decisions(frame: Frame, columns: int, rows: int, glyphs: Glyphs) -> list[Line]:
    """The latest decisions in at most ``rows`` lines, two for each at most."""
    lines: list[Line] = []
    for decision in reversed(frame.snapshot.decisions[-MAX_DECISIONS:]):
        at = f"{fmt.clock(decision.at_us / 1e6):>7}  "
        # One decision never takes more than a few lines, so a very long reason is not worth wrapping whole.
        parts = textwrap.wrap(
            fmt.clean(decision.text)[:1000], max(10, columns - len(at)), max_lines=2, placeholder=glyphs.ellipsis
        ) or [""]
        if len(lines) + len(parts) > rows:
            break
        block = [[Span(at if i == 0 else " " * len(at), "dim"), Span(part)] for i, part in enumerate(parts)]
        lines = [_clip(line, columns, glyphs) for line in block] + lines
    return lines


def _header(frame: Frame, columns: int, glyphs: Glyphs) -> Line:
    spans = [Span("gristmill", "bold"), Span("  ")]
    for i, part in enumerate(headline(frame, glyphs)):
        spans += [Span(f" {glyphs.dot} ", "dim"), Span(part)] if i else [Span(part)]
    return _clip(spans, columns, glyphs)


def _documents(frame: Frame, columns: int, glyphs: Glyphs) -> list[Line]:
    parts = documents(frame)
    if not parts:
        return []
    return [_clip([Span("input      ", "dim"), Span(f" {glyphs.dot} ".join(parts))], columns, glyphs)]


def _memory(frame: Frame, columns: int, glyphs: Glyphs) -> list[Line]:
    """In flight against the budget, and the processes against their limit: side by side where there is room."""
    snapshot = frame.snapshot
    side_by_side = columns >= 96
    bar = 20 if columns >= 60 else 8
    flight = [Span("in flight  ", "dim")]
    held, reserved, budget = snapshot.held_bytes, snapshot.reserved_bytes, snapshot.budget_bytes
    if budget > 0:
        flight += [*_bar(held, reserved, budget, bar, glyphs), Span("  ")]
    flight.append(Span(_of(held + reserved, budget)))
    memory = [Span("memory  ", "dim") if side_by_side else Span("memory     ", "dim")]
    if frame.memory_limit > 0:
        memory += [*_bar(frame.memory_bytes, 0, frame.memory_limit, bar, glyphs), Span("  ")]
    memory.append(Span(_of(frame.memory_bytes, frame.memory_limit)))
    if side_by_side:
        gap = max(3, columns // 2 - _width(flight))
        return [_clip([*flight, Span(" " * gap), *memory], columns, glyphs)]
    return [_clip(flight, columns, glyphs), _clip(memory, columns, glyphs)]


def _of(used: int, limit: int) -> str:
    return f"{fmt.size(used)} of {fmt.size(limit)}" if limit > 0 else fmt.size(used)


def _bar(solid: int, soft: int, limit: int, columns: int, glyphs: Glyphs) -> Line:
    """A bar of which ``solid`` of ``limit`` is filled and ``soft`` more is spoken for."""
    filled = min(columns, round(columns * solid / limit))
    promised = min(columns, max(filled, round(columns * (solid + soft) / limit)))
    share = (solid + soft) / limit
    style = "red" if share > 0.95 else "yellow" if share > 0.8 else "green"
    return [
        Span(glyphs.full * filled, style),
        Span(glyphs.held * (promised - filled), style),
        Span(glyphs.empty * (columns - promised), "dim"),
    ]


def _table(frame: Frame, columns: int, rows: int, glyphs: Glyphs) -> list[Line]:
    steps = frame.snapshot.steps
    shown = [c for c in COLUMNS if columns >= c.from_columns]
    # The names take what the numbers leave: a mark and a space before them, two spaces before each column.
    room = columns - 2 - sum(c.width + 2 for c in shown)
    names = {i: fmt.clean(steps[i].name) for i in foremost(frame.snapshot, rows)}
    wanted = max((fmt.width(name) for name in names.values()), default=0)
    name_width = max(MIN_NAME, min(room, MAX_NAME, max(wanted, MIN_NAME)))
    lines: list[Line] = [[Span("  " + "step".ljust(name_width), "bold dim")]]
    for column in shown:
        lines[0].append(Span("  " + column.title.rjust(column.width), "bold dim"))
    for i, full_name in names.items():
        step, rates = steps[i], frame.rates.steps[i]
        limits = i == frame.snapshot.bottleneck and not frame.ending
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
        # Which ones are left out differs from picture to picture, so only their number is told.
        lines.append([Span(f"  {glyphs.ellipsis} and {hidden:,} more steps", "dim")])
    return [_clip(line, columns, glyphs) for line in lines]


def foremost(snapshot: Snapshot, rows: int) -> list[int]:
    """The steps to show when there is room for ``rows``, in the order of the pipeline.

    All if they fit. Otherwise one row is left for a note, and the others are for the bottleneck, then steps
    with work, then those with errors.
    """
    steps = snapshot.steps
    if len(steps) <= rows:
        return list(range(len(steps)))

    def rank(i: int) -> tuple[bool, bool, bool, bool, int]:
        s = steps[i]
        active = s.running > 0 or s.busy > 0
        return (i != snapshot.bottleneck, not active, not s.queued, not s.tasks_failed, i)

    return sorted(sorted(range(len(steps)), key=rank)[: max(1, rows - 1)])


def _width(line: Line) -> int:
    return sum(fmt.width(span.text) for span in line)


def _clip(line: Line, columns: int, glyphs: Glyphs) -> Line:
    """``line`` without what is beyond ``columns``."""
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
