"""Distributions as one HTML file with drawings, without any other file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape

from gristmill.analysis.stats import Statistics
from gristmill.metrics.format import escaped
from gristmill.scores.sketch import Distribution, Histogram
from gristmill.scores.tables import StoredRule
from gristmill.scores.top import TopCounts

WIDTH, HEIGHT = 640, 140
MOST_VALUES = 20
_STYLE = """
:root { color-scheme: light dark; --bar: #3b6ea5; --mark: #b3541e; --line: #8888; }
@media (prefers-color-scheme: dark) { :root { --bar: #7fb0e6; --mark: #f0a15e; } }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 46em; margin: 2em auto; padding: 0 1em; }
svg { width: 100%; height: auto; } svg rect { fill: var(--bar); } svg .mark { stroke: var(--mark); stroke-width: 2; }
svg text { font-size: 11px; fill: currentColor; } svg .axis { stroke: var(--line); }
table { border-collapse: collapse; } td { padding: 0 1em 0 0; } td.n { text-align: right; }
h3 { overflow-wrap: anywhere; }
"""


def page(title: str, found: Statistics, scores: Sequence[tuple[StoredRule, Distribution]] = ()) -> str:
    """Return the HTML of all distributions."""
    body = "\n".join(_body(title, found, scores))
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{_text(title)}</title>'
        f'<meta name="viewport" content="width=device-width"><style>{_STYLE}</style></head>\n<body>\n{body}\n'
        "</body></html>\n"
    )


def _body(title: str, found: Statistics, scores: Sequence[tuple[StoredRule, Distribution]]) -> Iterator[str]:
    yield f"<h1>{_text(title)}</h1>"
    for name, group in sorted(found.groups.items(), key=lambda one: (-one[1].documents, one[0])):
        heading = f"{found.by}: {name}" if found.by else "All documents"
        yield f"<h2>{_text(heading)}: {group.documents:,}</h2>"
        for key, numbers in group.numbers.items():
            yield from _numbers(key, numbers)
        for key, values in group.values.items():
            yield from _values(key, values)
    if scores:
        yield "<h2>Scores of rules</h2>"
    for rule, distribution in scores:
        yield from _numbers(rule.path, distribution, [one.value for one in rule.thresholds])


def _numbers(name: str, numbers: Distribution, marks: Sequence[float] = ()) -> Iterator[str]:
    yield f"<h3>{_text(name)}</h3>"
    if not numbers.count:
        yield "<p>no numbers</p>"
        return
    parts = [f"{word} {value(q)}" for word, q in summary(numbers)]
    yield f"<p>{', '.join(parts)}</p>"
    yield drawing(numbers.shown(60), marks)


def summary(numbers: Distribution) -> list[tuple[str, float]]:
    """Return the numbers that describe a distribution, each with its name."""
    return [
        ("smallest", numbers.least),
        ("5%", numbers.quantile(0.05)),
        ("median", numbers.quantile(0.5)),
        ("mean", numbers.mean),
        ("95%", numbers.quantile(0.95)),
        ("largest", numbers.most),
    ]


def value(number: float) -> str:
    """Return a number for people."""
    if number == int(number) and abs(number) < 1e15:
        return f"{int(number):,}"
    return f"{number:,.1f}" if abs(number) >= 1000 else f"{number:.4g}"


def drawing(histogram: Histogram, marks: Sequence[float] = ()) -> str:
    """Return a histogram as SVG. Thresholds are lines."""
    counts, edges = histogram.counts, histogram.edges
    most = max(counts, default=0) or 1
    each = WIDTH / max(1, len(counts))
    parts = [f'<line class="axis" x1="0" x2="{WIDTH}" y1="{HEIGHT}" y2="{HEIGHT}"/>']
    for k, n in enumerate(counts):
        height = n / most * (HEIGHT - 14)
        label = f"{value(edges[k])} to below {value(edges[k + 1])}: {n:,}"
        parts.append(
            f'<rect x="{k * each:.2f}" y="{HEIGHT - height:.2f}" width="{max(0.5, each - 1):.2f}" '
            f'height="{height:.2f}"><title>{label}</title></rect>'
        )
    for mark in marks:
        place = place_of(histogram, mark)
        if place is not None:
            x = place * each
            parts.append(
                f'<line class="mark" x1="{x:.2f}" x2="{x:.2f}" y1="0" y2="{HEIGHT}"><title>{value(mark)}</title></line>'
            )
    for k in range(0, len(edges), max(1, len(edges) // 6)):
        parts.append(f'<text x="{k * each:.2f}" y="{HEIGHT + 14}">{value(edges[k])}</text>')
    return f'<svg viewBox="0 0 {WIDTH + 40} {HEIGHT + 20}" role="img">{"".join(parts)}</svg>'


def place_of(histogram: Histogram, number: float) -> float | None:
    """Return where a number is among the edges, in bins; None if it is outside."""
    edges = histogram.edges
    if len(edges) < 2 or not edges[0] <= number <= edges[-1]:
        return None
    for k in range(len(edges) - 1):
        if number <= edges[k + 1]:
            width = edges[k + 1] - edges[k]
            return k + (number - edges[k]) / width if width else float(k)
    return None


def _values(name: str, values: TopCounts) -> Iterator[str]:
    yield f"<h3>{_text(name)}</h3>"
    shown = values.most_common(MOST_VALUES)
    if values.error:
        yield f"<p>Too many different values for exact counts: each may be too low by up to {values.error:,}.</p>"
    rows = "".join(f'<tr><td>{_text(one)}</td><td class="n">{n:,}</td></tr>' for one, n in shown)
    yield f"<table>{rows}</table>"


def _text(text: str) -> str:
    return escape(escaped(text))
