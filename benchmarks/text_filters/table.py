"""Results as a Markdown table: medians, spreads, and ratios to the first row, round by round."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import median

from measure import Measured

HEAD = (
    "",
    "rounds",
    "wall s",
    "x first",
    "after start-up s",
    "x first",
    "CPU s",
    "x first",
    "peak PSS MB",
    "documents/s",
    "MB/s",
    "kept",
)


def markdown(runs: Mapping[str, Sequence[Measured]], documents: int, size: int) -> str:
    """A row for each job. Ratios are taken to the run of the first job in the same round.

    ``documents`` and ``size`` (bytes) are what every job read.
    """
    first = next(iter(runs.values()))
    lines = [
        f"| {' | '.join(HEAD)} |",
        "|---" * len(HEAD) + "|",
    ]
    for label, ones in runs.items():
        whole = [one for one in ones if one.ok]
        if not whole:
            lines.append(f"| {label} | failed |{' |' * (len(HEAD) - 2)}")
            continue
        work = [one.work_s for one in whole if one.work_s is not None]
        speed = median(work) if work else median(one.wall_s for one in whole)
        cells = [
            label,
            str(len(whole)),
            spread([one.wall_s for one in whole]),
            spread(ratios(ones, first, lambda one: one.wall_s)),
            spread(work),
            spread(ratios(ones, first, lambda one: one.work_s)),
            spread([one.cpu_s for one in whole]),
            spread(ratios(ones, first, lambda one: one.cpu_s)),
            spread([one.peak_pss / 1e6 for one in whole]),
            f"{documents / speed:,.0f}",
            f"{size / speed / 1e6:,.1f}",
            ", ".join(sorted({f"{one.figures.get('kept'):,}" for one in whole})),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def ratios(
    ones: Sequence[Measured], first: Sequence[Measured], value: Callable[[Measured], float | None]
) -> list[float]:
    found = []
    for one, base in zip(ones, first, strict=False):
        a, b = value(one), value(base)
        if one is not base and one.ok and base.ok and a is not None and b:
            found.append(a / b)
    return found


def spread(values: Sequence[float]) -> str:
    """The median, and the range where there is more than one value."""
    if not values:
        return ""
    if len(values) == 1:
        return figure(values[0])
    return f"{figure(median(values))} ({figure(min(values))}-{figure(max(values))})"


def figure(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"
