"""Numbers and names as short text."""

from __future__ import annotations

import math
import unicodedata
from typing import NamedTuple, TextIO


class Glyphs(NamedTuple):
    """The characters beyond ASCII, and their replacements where they cannot be shown."""

    full: str = "█"
    held: str = "▒"
    empty: str = "░"
    bottleneck: str = "▶"
    ellipsis: str = "…"
    dot: str = "·"
    about: str = "≈"
    levels: str = " ▁▂▃▄▅▆▇█"
    """The bars of a chart, from nothing to the most."""
    line: str = "─"
    tick: str = "┴"


UNICODE = Glyphs()
ASCII = Glyphs("#", "+", ".", ">", "~", "|", "~", levels=" .:-=+*#@", line="-", tick="+")


def count(value: float) -> str:
    """A whole number in at most six characters.

    >>> count(950), count(12_345), count(99_960), count(1_234_567)
    ('950', '12,345', '99,960', '1.2M')
    """
    if value < 100_000:
        return f"{value:,.0f}"
    for unit in ("k", "M", "G", "T"):
        value /= 1000
        if value < 99.95:
            return f"{value:.1f}{unit}"
        if value < 999.5:
            return f"{value:.0f}{unit}"
    return f"{value:.0f}T"


def rate(value: float) -> str:
    """A number per second.

    >>> rate(0), rate(0.0213), rate(3.98), rate(41.2), rate(4512)
    ('0', '0.021', '3.98', '41.2', '4,512')
    """
    if value <= 0:
        return "0"
    if value < 0.001:
        return "<0.001"
    if value < 0.0995:
        return f"{value:.3f}"
    if value < 9.995:
        return f"{value:.2f}"
    if value < 99.95:
        return f"{value:.1f}"
    return count(value)


def size(value: int) -> str:
    """Bytes; a kB is 1024 of them.

    >>> size(0), size(999), size(64 << 10), size(8 << 30)
    ('0 B', '999 B', '64 kB', '8.0 GB')
    """
    if value < 1000:
        return f"{value} B"
    scaled = float(value)
    for unit in ("kB", "MB", "GB", "TB"):
        scaled /= 1024
        if scaled < 9.95 and unit != "kB":
            return f"{scaled:.1f} {unit}"
        if scaled < 999.5:
            return f"{scaled:.0f} {unit}"
    return f"{scaled / 1024:.1f} PB"


def clock(seconds: float) -> str:
    """A duration in clock format.

    >>> clock(7.4), clock(75), clock(3_725), clock(90_061)
    ('0:07', '1:15', '1:02:05', '1d 1:01:01')
    """
    whole = max(0, int(seconds))
    days, rest = divmod(whole, 86_400)
    hours, rest = divmod(rest, 3600)
    minutes, secs = divmod(rest, 60)
    if days:
        return f"{days}d {hours}:{minutes:02}:{secs:02}"
    if hours:
        return f"{hours}:{minutes:02}:{secs:02}"
    return f"{minutes}:{secs:02}"


def span(seconds: float) -> str:
    """The duration of one task.

    >>> span(0.0004), span(0.25), span(1.5), span(75)
    ('0.4 ms', '250 ms', '1.5 s', '1:15')
    """
    if seconds < 0.00995:
        return f"{seconds * 1000:.1f} ms"
    if seconds < 0.9995:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    return clock(seconds)


def duration(seconds: float) -> str:
    """A duration in words.

    >>> duration(0), duration(7.42), duration(3492), duration(3600), duration(8_040)
    ('0 s', '7.4 s', '58 min 12 s', '1 h', '2 h 14 min')
    """
    if seconds < 9.95:
        return f"{seconds:.1f} s" if seconds >= 0.05 else "0 s"
    whole = round(seconds)
    if whole >= 3600:
        whole = round(whole / 60) * 60
    parts = [(whole // 3600, "h"), (whole // 60 % 60, "min"), (whole % 60, "s")]
    return " ".join(f"{n:,} {unit}" for n, unit in parts if n)


def percent(share: float) -> str:
    """A share in percent, rounded down: only 1.0 is 100 %.

    >>> percent(0.004), percent(0.999), percent(1.0)
    ('0%', '99%', '100%')
    """
    return f"{math.floor(min(max(share, 0.0), 1.0) * 100 + 1e-9)}%"


def encoding_of(stream: TextIO) -> str:
    try:
        return stream.encoding or "utf-8"
    except AttributeError:  # an object that replaces a standard stream may have none
        return "utf-8"


def can_show(stream: TextIO, text: str) -> bool:
    """Whether the encoding of ``stream`` has all the characters in ``text``."""
    try:
        text.encode(encoding_of(stream))
    except UnicodeEncodeError:
        return False
    return True


def clean(text: str) -> str:
    """Return ``text`` on one line, without control characters."""
    return "".join(c if c.isprintable() else " " for c in text)


def escaped(text: str) -> str:
    """Return ``text`` on one line, with control characters escaped.

    >>> print(escaped("a\\nb \\x1b[31mred \\u202e"))
    a\\nb \\x1b[31mred \\u202e
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape", "backslashreplace").decode() for c in text)


def width(text: str) -> int:
    """Terminal columns that ``text`` takes."""
    if text.isascii():
        return len(text)
    return sum(_char_width(c) for c in text)


def _char_width(char: str) -> int:
    if unicodedata.combining(char):
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


def shorten(text: str, columns: int, mark: str = "…") -> str:
    """Return ``text`` in at most ``columns``, shortened in the middle.

    >>> shorten("quality_classifier", 9)
    'qual…fier'
    """
    if width(text) <= columns:
        return text
    left = columns - width(mark)
    if left < 2:
        return _take(text, max(columns, 0))
    tail = left // 2
    head = _take(text, left - tail)
    return head + mark + _take(text[::-1], tail)[::-1]


def cut(text: str, columns: int, mark: str = "…") -> str:
    """Return ``text`` in at most ``columns``, shortened at the end."""
    if width(text) <= columns:
        return text
    return _take(text, columns - width(mark)) + mark if columns > width(mark) else _take(text, columns)


def _take(text: str, columns: int) -> str:
    used = 0
    for index, char in enumerate(text):
        used += _char_width(char)
        if used > columns:
            return text[:index]
    return text
