"""Charts as SVG. Plots stretch with the page; their labels are HTML, so that they keep their size on a phone."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from gristmill.report.page.text import escaped, number
from gristmill.report.place import Data

WIDTH, HEIGHT = 1000, 100
COLOURS = 8
MOST_MARKS = 60
Numbers = Sequence[float]


class Line(NamedTuple):
    """One series of a chart. Values are at the times of the chart."""

    name: str
    values: Numbers


class Limit(NamedTuple):
    """A level to draw."""

    level: float
    words: str


class Mark(NamedTuple):
    """Something that happened at one time."""

    at: float
    words: str


def swatch(colour: int | str) -> str:
    """Return a small square in a colour."""
    name = colour if isinstance(colour, str) else f"f{colour % COLOURS}"
    return f'<svg viewBox="0 0 1 1" aria-hidden="true"><rect class="{name}" width="1" height="1"/></svg>'


def bar(share: float, parts: Sequence[tuple[float, str]] = ()) -> str:
    """Return a bar of a share of the width. ``parts`` are shares with their classes, one after the other."""
    drawn, at = [], 0.0
    for width, name in parts or ((share, "kept"),):
        width = min(max(width, 0.0), 1.0 - at)
        drawn.append(f'<rect class="{name}" x="{at * WIDTH:.1f}" width="{width * WIDTH:.1f}" height="10"/>')
        at += width
    return f'<svg viewBox="0 0 {WIDTH} 10" preserveAspectRatio="none" aria-hidden="true">{"".join(drawn)}</svg>'


def lines(
    title: str,
    times: Numbers,
    series: Sequence[Line],
    unit: Callable[[float], str] = number,
    limit: Limit | None = None,
    marks: Sequence[Mark] = (),
    stacked: bool = False,
    top: float | None = None,
) -> str:
    """Return a chart over time: lines, or stacked areas. ``limit`` is drawn if it is near."""
    if len(times) < 2 or not series:
        return ""
    end = times[-1] or 1.0
    highest = _highest(series, stacked)
    if limit is not None and limit.level <= 4 * highest:
        highest = max(highest, limit.level)
    ceiling = top or _round_up(highest)
    parts = [_grid()]
    parts += _areas(times, end, series, ceiling) if stacked else _polylines(times, end, series, ceiling)
    if limit is not None and limit.level <= ceiling:
        y = HEIGHT - HEIGHT * limit.level / ceiling
        parts.append(f'<line class="limit" x1="0" x2="{WIDTH}" y1="{y:.1f}" y2="{y:.1f}"/>')
    parts += [_mark(mark, end) for mark in marks[:MOST_MARKS]]
    keys = [f"<span>{swatch(i)}{escaped(one.name)}</span>" for i, one in enumerate(series)] if len(series) > 1 else []
    if limit is not None:
        keys.append(f"<span>{'- - ' if limit.level <= ceiling else ''}{escaped(limit.words)}</span>")
    if marks:
        more = f", the first {MOST_MARKS} drawn" if len(marks) > MOST_MARKS else ""
        keys.append(f"<span>┊ {len(marks):,} decision{'s' * (len(marks) != 1)} of the balancer{more}</span>")
    legend = f'<span class="key">{"".join(keys)}</span>' if keys else ""
    label = escaped(f"{title}: at most {unit(highest)} in {_clock(end)}")
    return _figure(
        f"{escaped(title)}{legend}",
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" preserveAspectRatio="none" role="img" aria-label="{label}">'
        f"{''.join(parts)}</svg>",
        [unit(ceiling), unit(ceiling / 2), unit(0)],
        ["0 s", _clock(end / 2), _clock(end)],
    )


def _figure(caption: str, svg: str, y: Sequence[str], x: Sequence[str], kind: str = "time") -> str:
    ys = "".join(f"<span>{one}</span>" for one in y)
    xs = "".join(f"<span>{one}</span>" for one in x)
    return (
        f'<figure class="{kind}"><figcaption>{caption}</figcaption><div class="plot">'
        f'<div class="y">{ys}</div>{svg}<div class="x">{xs}</div></div></figure>'
    )


def _grid() -> str:
    return f'<line class="g" x1="0" x2="{WIDTH}" y1="0" y2="0"/><line class="g" x1="0" x2="{WIDTH}" y1="50" y2="50"/>'


def _highest(series: Sequence[Line], stacked: bool) -> float:
    if stacked:
        return max((sum(values) for values in zip(*(one.values for one in series), strict=True)), default=0.0)
    return max((max(one.values, default=0.0) for one in series), default=0.0)


def _polylines(times: Numbers, end: float, series: Sequence[Line], ceiling: float) -> list[str]:
    drawn = []
    for i, one in enumerate(series):
        points = " ".join(
            f"{WIDTH * at / end:.1f},{HEIGHT - HEIGHT * min(value, ceiling) / ceiling:.1f}"
            for at, value in zip(times, one.values, strict=True)
        )
        name = f"<title>{escaped(one.name)}</title>"
        drawn.append(f'<polyline class="l s{i % COLOURS}" points="{points}">{name}</polyline>')
    return drawn


def _areas(times: Numbers, end: float, series: Sequence[Line], ceiling: float) -> list[str]:
    """Return areas that lie on each other. A value holds until the next one."""
    base = [0.0] * len(times)
    drawn = []
    for i, one in enumerate(series):
        above = [low + value for low, value in zip(base, one.values, strict=True)]
        if any(one.values):
            upper, lower = (_steps(times, end, values, ceiling) for values in (above, base))
            points = " ".join([*upper, *reversed(lower)])
            drawn.append(
                f'<polygon class="area f{i % COLOURS}" points="{points}"><title>{escaped(one.name)}</title></polygon>'
            )
        base = above
    return drawn


def _steps(times: Numbers, end: float, values: Numbers, ceiling: float) -> list[str]:
    points, y = [], None
    for at, value in zip(times, values, strict=True):
        x = WIDTH * at / end
        level = HEIGHT - HEIGHT * min(value, ceiling) / ceiling
        if y is not None and level != y:
            points.append(f"{x:.1f},{y:.1f}")
        points.append(f"{x:.1f},{level:.1f}")
        y = level
    return points


def _mark(mark: Mark, end: float) -> str:
    x = WIDTH * min(1.0, mark.at / end)
    place = f'x1="{x:.1f}" x2="{x:.1f}" y1="0" y2="{HEIGHT}"'
    words = escaped(f"{_clock(mark.at)}: {mark.words}")
    return f'<g><line class="mark" {place}/><line class="hit" {place}><title>{words}</title></line></g>'


def histogram(title: str, found: Data, limits: Sequence[tuple[float, bool]]) -> str:
    """Return a histogram with threshold lines.

    ``limits`` are thresholds, each with whether scores below it are dropped.
    """
    low, high = float(found["low"]), float(found["high"])
    shown_score: Callable[[float], str] = _of_logarithm if found.get("is_log") else number
    sides: list[tuple[str, list[int]]] = [("kept", found["kept"]), ("gone", found["dropped"])]
    totals = [sum(column) for column in zip(*(counts for _, counts in sides), strict=True)]
    highest = max(totals, default=0) or 1
    width = WIDTH / max(1, len(totals))
    span = (high - low) or 1.0
    base = [0.0] * len(totals)
    parts = [_grid()]
    for name, counts in sides:
        for i, n in enumerate(counts):
            if not n:
                continue
            height = max(0.8, HEIGHT * n / highest)
            where = f"{shown_score(low + span * i / len(counts))} to {shown_score(low + span * (i + 1) / len(counts))}"
            parts.append(
                f'<rect class="{name}" x="{i * width + 0.6:.1f}" y="{HEIGHT - base[i] - height:.1f}" '
                f'width="{width - 1.2:.1f}" height="{height:.1f}"><title>{where}: {n:,}</title></rect>'
            )
            base[i] += height
    shown = []
    for limit, is_below in limits:
        words = f"{'below' if is_below else 'above'} {number(limit)} dropped"
        level = math.log1p(limit) if found.get("is_log") and limit > -1 else limit
        if low <= level <= high:
            x = WIDTH * (level - low) / span
            parts.append(
                f'<line class="limit" x1="{x:.1f}" x2="{x:.1f}" y1="0" y2="{HEIGHT}"><title>{words}</title></line>'
            )
            words = f"- - {words}"
        shown.append(f"<span>{words}</span>")
    names = (("kept", "kept"), ("gone", "dropped"))
    keys = [f"<span>{swatch(name)}{word}</span>" for name, word in names if any(found[word])]
    return _figure(
        f'{escaped(title)}<span class="key">{"".join([*keys, *shown])}</span>',
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" preserveAspectRatio="none" role="img" aria-label="{escaped(title)}: '
        f'histogram of scores">{"".join(parts)}</svg>',
        [f"{highest:,}", "", "0"],
        [shown_score(low), shown_score((low + high) / 2), shown_score(high)],
        "hist",
    )


def _of_logarithm(value: float) -> str:
    """Return the score of a logarithm of 1 plus the score."""
    return number(round(math.expm1(value), 0 if value > 5 else 2))


def _round_up(value: float) -> float:
    """Return the next number of the form 1, 1.5, 2, 3, 4, 5, 6 or 8 times a power of ten.

    >>> _round_up(0.7), _round_up(13), _round_up(2), _round_up(0)
    (0.8, 15.0, 2.0, 1.0)
    """
    if value <= 0:
        return 1.0
    power = 10.0 ** (len(str(int(value))) - 1) if value >= 1 else 1.0
    while value < power:
        power /= 10
    return next(step * power for step in (1, 1.5, 2, 3, 4, 5, 6, 8, 10) if step * power >= value * 0.999999)


def _clock(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.3g} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
