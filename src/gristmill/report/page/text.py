"""Text of runs and documents as HTML: escaped, with characters that hide or turn text made visible."""

from __future__ import annotations

import re
from datetime import UTC, datetime

_ESCAPES = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#39;"})
_HIDDEN = re.compile(
    "["
    "\x00-\x08\x0b-\x1f\x7f-\x9f"  # control characters; tab and line feed stay
    "\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u3164\uffa0"  # invisible letters and marks
    "\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufe00-\ufe0f\ufeff\ufff9-\uffff"  # joiners, direction, variation, others
    "\ud800-\udfff\ue000-\uf8ff"  # halves of pairs, private use
    "\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U0010ffff"
    "]+"
)
MOST_LINES = 12
GROWTH = 6
"""Escaped text is at most so many times as long as the text that is wanted."""


def escaped(text: object) -> str:
    """Return text as HTML.

    >>> escaped("<b> \u202e x")
    '&lt;b&gt; <u>U+202E</u> x'
    """
    plain = str(text).translate(_ESCAPES)
    return plain if plain.isprintable() else _HIDDEN.sub(_shown, plain)


def _shown(match: re.Match[str]) -> str:
    found = match.group()
    codes = [f"U+{ord(char):04X}" for char in found[:3]]
    more = f" and {len(found) - 3:,} more" if len(found) > 3 else ""
    return f"<u>{' '.join(codes)}{more}</u>"


def excerpt(text: str, longest: int, characters: int | None = None) -> str:
    """Return the beginning of a document as HTML: few lines, no long one, and how long the whole is."""
    lines = text[:longest].splitlines()[:MOST_LINES] or [""]
    shown = "\n".join(lines)
    html = escaped(shown)
    while len(html) > GROWTH * longest:
        shown = shown[: len(shown) // 2]
        html = escaped(shown)
    total = len(text) if characters is None else characters
    cut = f' <i class="more">… {total:,} characters</i>' if total > len(shown) else ""
    return f"<pre>{html}{cut}</pre>"


def number(value: float | int | None) -> str:
    """Return a number with separators.

    >>> number(12345), number(0.51234), number(3.0)
    ('12,345', '0.5123', '3')
    """
    if value is None:
        return "-"
    if isinstance(value, int) or float(value).is_integer():
        return f"{value:,.0f}"
    return f"{value:,.1f}" if abs(value) >= 1000 else f"{value:.4g}"


def moment(seconds: float | None) -> str:
    """Return a time in UTC.

    >>> moment(0)
    '1970-01-01 00:00:00 UTC'
    """
    if seconds is None:
        return "-"
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
