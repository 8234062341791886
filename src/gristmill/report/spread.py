"""A part of many files."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import TypeVar

One = TypeVar("One")


def spread(files: Sequence[One], most: int) -> list[One]:
    """Return at most ``most`` files: always the same ones, from everywhere, of all kinds of names."""
    if len(files) <= most:
        return list(files)
    chosen = sorted(range(len(files)), key=lambda i: zlib.crc32(repr(files[i]).encode("utf-8", "replace")))[:most]
    return [files[i] for i in sorted(chosen)]
