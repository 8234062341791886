"""Files cut into blocks: what one task reads."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from gristmill.errors import PlanError
from gristmill.tasks import FileBlock, FileRange

DEFAULT_BLOCKSIZE = 16 << 20
"""A constant, so that the names of outputs depend on the input alone."""
MAX_BLOCKS = 1_000_000
"""Six digits of a file's name."""

_UNITS = {"": 1, "B": 1}
_UNITS |= {f"{prefix}{unit}": 1000**n for n, prefix in enumerate("KMGT", 1) for unit in ("", "B")}
_UNITS |= {f"{prefix}IB": 1024**n for n, prefix in enumerate("KMGT", 1)}


def bytes_of(size: int | str) -> int:
    """A size as a number of bytes: 1000, "256MB" (of 1000), "16MiB" (of 1024)."""
    if isinstance(size, int) and not isinstance(size, bool):
        number = size
    else:
        match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*", str(size))
        if not match or isinstance(size, bool) or match[2].upper() not in _UNITS:
            raise ValueError(f'blocksize must be bytes or a text like "256MB" or "16MiB", not {size!r}.')
        number = int(float(match[1]) * _UNITS[match[2].upper()])
    if number < 1:
        raise ValueError(f"blocksize must be at least one byte, not {size!r}.")
    return number


def cut(size: int, blocksize: int) -> list[tuple[int, int]]:
    """Ranges of ``blocksize`` that cover 0 to ``size``; one empty range if that is nothing."""
    return [(start, min(start + blocksize, size)) for start in range(0, max(size, 1), blocksize)]


def pack(parts: Iterable[Sequence[FileRange]], sizes: Iterable[int], limit: int) -> list[list[FileRange]]:
    """Parts that follow each other put together as long as they stay within ``limit``."""
    groups: list[list[FileRange]] = []
    room = -1
    for part, size in zip(parts, sizes, strict=True):
        if groups and size <= room:
            groups[-1] += part
            room -= size
        else:
            groups.append(list(part))
            room = limit - size
    return groups


def numbered(groups: Sequence[list[FileRange]]) -> list[FileBlock]:
    """Blocks with their numbers as ids."""
    if len(groups) > MAX_BLOCKS:
        raise PlanError(
            f"the input makes {len(groups):,} blocks, and there can be {MAX_BLOCKS:,}: give a larger blocksize, "
            'blocksize="256MB" say, which also puts small files together.'
        )
    return [FileBlock(task_id=str(number), data=group) for number, group in enumerate(groups)]
