"""Files split into blocks, each the input of one task."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise

from gristmill.errors import PlanError
from gristmill.sizes import parse_size
from gristmill.tasks import FileBlock, FileRange

DEFAULT_BLOCKSIZE = 16 << 20
SMALLEST_BLOCKSIZE = 1 << 20
BLOCKS_OF_SMALL = 16
"""A small input is split into about so many blocks: all CPUs have work, and a stopped run loses little."""
UNPACKED = 4
"""The estimated size in memory of compressed data, as a multiple of its size in the file."""
MAX_BLOCKS = 1_000_000
"""Six digits of a file's name."""


def bytes_of(size: int | str) -> int:
    """A size in bytes, given as a number or as text with a unit of 1024: 1000, "256MB"."""
    try:
        return parse_size(size)
    except ValueError as error:
        raise ValueError(f"blocksize: {error}.") from None


def default_blocksize(total: int) -> int:
    """Return the size of blocks for an input of ``total`` bytes: from 1 MiB to 16 MiB.

    It depends on the input alone, not on the machine, and so do the names of output files.
    """
    return max(SMALLEST_BLOCKSIZE, min(DEFAULT_BLOCKSIZE, -(-total // BLOCKS_OF_SMALL)))


def cut(size: int, blocksize: int) -> list[tuple[int, int]]:
    """Ranges of ``blocksize`` that cover 0 to ``size``; one empty range if that is nothing."""
    return [(start, min(start + blocksize, size)) for start in range(0, max(size, 1), blocksize)]


def cut_evenly(size: int, blocksize: int) -> list[tuple[int, int]]:
    """Ranges of about ``blocksize``, from 2/3 to 1 1/2 of it, that cover 0 to ``size``; equal but for a byte."""
    count = max(1, round(size / blocksize))
    edges = [size * i // count for i in range(count + 1)]
    return list(pairwise(edges))


def pack(parts: Iterable[Sequence[FileRange]], sizes: Iterable[int], limit: int) -> list[list[FileRange]]:
    """Combine consecutive parts as long as their size stays within ``limit``."""
    groups: list[list[FileRange]] = []
    free = -1
    for part, size in zip(parts, sizes, strict=True):
        if groups and size <= free:
            groups[-1] += part
            free -= size
        else:
            groups.append(list(part))
            free = limit - size
    return groups


def numbered(groups: Sequence[list[FileRange]]) -> list[FileBlock]:
    """Blocks with their numbers as ids."""
    if len(groups) > MAX_BLOCKS:
        raise PlanError(
            f"the input makes {len(groups):,} blocks, and there can be {MAX_BLOCKS:,}: give a larger blocksize, "
            'for example blocksize="256MB", which also puts small files together.'
        )
    return [FileBlock(task_id=str(number), data=group) for number, group in enumerate(groups)]
