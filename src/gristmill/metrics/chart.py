"""Counts over time as rows of a plain-text chart."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gristmill.metrics import format as fmt
from gristmill.metrics.format import UNICODE, Glyphs

Timeline = Sequence[tuple[float, int]]
"""(seconds, the count from then on), in order."""

_STEPS = (1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 10_800, 21_600, 43_200, 86_400)
MIN_TICK = 10
"""The least columns between two ticks; the longest label is ``12000 min``."""
MAX_NAME = 24
MIN_CELLS = 8


def means(timeline: Timeline, end: float, cells: int) -> list[float]:
    """The mean count in each of ``cells`` equal parts of the time from 0 to ``end``.

    >>> means([(0.0, 2), (5.0, 4)], 8.0, 4)
    [2.0, 2.0, 3.0, 4.0]
    """
    width = end / cells
    sums = [0.0] * cells
    for start, stop, n in _pieces(timeline, end):
        first = min(int(start / width), cells - 1)
        last = min(int(stop / width), cells - 1)
        for i in range(first, last + 1):
            sums[i] += n * max(0.0, min(stop, (i + 1) * width) - max(start, i * width))
    # Rounded, so that errors in the last bit of a sum disappear.
    return [round(total / width, 6) for total in sums]


def most(timeline: Timeline, end: float) -> int:
    """The highest count that lasted for any time.

    >>> most([(0.0, 1), (0.0, 2), (3.0, 5), (3.0, 0)], 10.0)
    2
    """
    return max((n for _, _, n in _pieces(timeline, end)), default=0)


def _pieces(timeline: Timeline, end: float) -> Iterator[tuple[float, float, int]]:
    """Yield each count with its start and end, without counts that lasted no time."""
    for i, (start, n) in enumerate(timeline):
        stop = min(timeline[i + 1][0] if i + 1 < len(timeline) else end, end)
        if start < stop:
            yield start, stop, n


def usual(timeline: Timeline, end: float) -> float:
    """The median count over the time that it was above 0.

    >>> usual([(0.0, 9), (1.0, 4), (8.0, 0)], 10.0)
    4.0
    """
    counts = sorted(mean for mean in means(timeline, end, 200) if mean) if end > 0 else []
    return counts[len(counts) // 2] if counts else 0.0


def row(timeline: Timeline, end: float, cells: int, glyphs: Glyphs = UNICODE) -> str:
    """One row of ``cells`` characters. The highest one is the peak of the timeline, and only 0 is blank.

    >>> row([(0.0, 2), (5.0, 8), (8.0, 0)], 10.0, 10)
    '▂▂▂▂▂███  '
    """
    peak = most(timeline, end)
    top = len(glyphs.levels) - 1
    if not peak or end <= 0:
        return " " * cells
    # Every count above 0 gets at least the first level, so that each worker is visible.
    return "".join(
        glyphs.levels[min(top, max(1, round(mean / peak * top)))] if mean else glyphs.levels[0]
        for mean in means(timeline, end, cells)
    )


def axis(end: float, cells: int, glyphs: Glyphs = UNICODE) -> tuple[str, str]:
    """A line with ticks at round times, and the labels below it.

    >>> print(*axis(60.0, 30, fmt.ASCII), sep="|")
    +---------+---------+---------|0         20 s      40 s
    """
    step: float = next((s for s in _STEPS if s / end * cells >= MIN_TICK), _STEPS[-1]) if end > 0 else 1
    while end > 0 and step / end * cells < MIN_TICK:
        step *= 2
    line, labels = [glyphs.line] * cells, ""
    at = 0.0
    while at < end or at == 0:
        column = int(at / end * cells) if end > 0 else 0
        label = _label(at, step)
        if column + len(label) > cells and at:
            break
        line[column] = glyphs.tick
        labels = labels.ljust(column) + label
        at += step
    return "".join(line), labels[:cells]


def _label(seconds: float, step: float) -> str:
    if not seconds:
        return "0"
    for unit, name in ((3600, "h"), (60, "min")):
        if step % unit == 0:
            return f"{seconds / unit:.0f} {name}"
    return f"{seconds:.0f} s"


def draw(rows: Sequence[tuple[str, Timeline]], end: float, columns: int, glyphs: Glyphs = UNICODE) -> list[str]:
    """Named rows over one time axis, at most ``columns`` wide. Each ends with its peak."""
    mosts = [fmt.count(most(timeline, end)) for _, timeline in rows]
    scale = max((len(peak) for peak in mosts), default=1)
    names = [fmt.clean(name) for name, _ in rows]
    widest = max((fmt.width(name) for name in names), default=0)
    name_width = max(1, min(widest, MAX_NAME, columns - scale - MIN_CELLS - 6))
    cells = max(1, columns - name_width - scale - 6)
    lines = []
    for name, (_, timeline), peak in zip(names, rows, mosts, strict=True):
        short = fmt.shorten(name, name_width, glyphs.ellipsis)
        pad = " " * (name_width - fmt.width(short))
        lines.append(f"  {short}{pad}  {row(timeline, end, cells, glyphs)}  {peak:>{scale}}")
    margin = " " * (name_width + 4)
    return lines + [(margin + line).rstrip() for line in axis(end, cells, glyphs)]
