"""One finding of the advisor."""

from __future__ import annotations

from typing import NamedTuple

PROBLEM, ADVICE, NOTE = "problem", "advice", "note"
ORDER = (PROBLEM, ADVICE, NOTE)

LEAST_S = 5.0
"""Rules about speed need a run that took so long."""


class Advice(NamedTuple):
    """What was found, the figure that shows it, and what to change."""

    rule: str
    kind: str
    title: str
    figure: str
    change: str


def percent(share: float) -> str:
    """Return a share in percent without decimals, but never 0 % or 100 % for what is between.

    >>> percent(0.351), percent(0.0004), percent(0.9999), percent(1.0)
    ('35 %', 'under 1 %', 'over 99 %', '100 %')
    """
    if 0 < share < 0.01:
        return "under 1 %"
    if 0.99 < share < 1:
        return "over 99 %"
    return f"{share:.0%}".replace("%", " %")


def seconds(value: float) -> str:
    """Return a duration for people.

    >>> seconds(0.0042), seconds(3.14), seconds(61.7), seconds(7300)
    ('4.2 ms', '3.1 s', '62 s', '2.0 h')
    """
    for limit, scale, unit, digits in ((1.0, 1e3, "ms", 1), (10.0, 1.0, "s", 1), (120.0, 1.0, "s", 0)):
        if value < limit:
            return f"{value * scale:.{digits}f} {unit}"
    return f"{value / 60:.0f} min" if value < 7200 else f"{value / 3600:.1f} h"
