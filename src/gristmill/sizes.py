"""Sizes as texts, read the same way in options, readers and the command line."""

from __future__ import annotations

import re

WANTED = "a size; write a number of bytes, or with a unit, such as 8GB or 512MiB"
_UNITS = {"": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}
_SIZE = re.compile(r"\s*([0-9]+(?:\.[0-9]*)?)\s*(?:([kmgt])i?)?b?\s*", re.IGNORECASE)


def parse_size(size: int | float | str) -> int:
    """Return the bytes of a number, or of a text with a unit. A GB is 2**30 bytes, as in `Resources`.

    Raise ValueError for anything else.

    >>> parse_size("8GB"), parse_size("1.5 GiB"), parse_size("4096")
    (8589934592, 1610612736, 4096)
    """
    number = 0.0
    if isinstance(size, str):
        match = _SIZE.fullmatch(size)
        number = float(match[1]) * _UNITS[(match[2] or "").lower()] if match else 0.0
    elif isinstance(size, int | float) and not isinstance(size, bool):
        number = size
    if not 1 <= number < 2**63:  # a text without a number gives 0
        raise ValueError(f"{size!r} is not {WANTED}")
    return int(number)
