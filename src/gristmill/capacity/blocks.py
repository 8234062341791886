"""The choice of a sample: blocks of the size that the job reads, and small ones, spread over the input."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median, pstdev, quantiles

from gristmill.capacity.errors import CapacityError
from gristmill.stages.text.io.blocks import numbered
from gristmill.stages.text.io.reader.base import FileReader
from gristmill.tasks import FileBlock, FileRange

_PARTS = 16
"""A small block is this part of a whole one."""
_LEAST = 64 << 10
_FILES = 32
"""Files from which small blocks are taken, at most."""
_FULL = 0.6
"""Share of the sample that is read in whole blocks."""


@dataclass(frozen=True)
class Sized:
    """A block and its bytes."""

    parts: list[FileRange]
    size: int


@dataclass(frozen=True)
class InputBlocks:
    """The input of the whole job, in blocks."""

    whole: list[Sized]
    small: list[Sized]
    """Small blocks of some of the files."""

    @property
    def bytes(self) -> int:
        return sum(block.size for block in self.whole)

    @property
    def mean_bytes(self) -> float:
        return self.bytes / len(self.whole)

    @property
    def spread(self) -> float:
        """Standard deviation of the size of a block, as a share of its mean."""
        return pstdev(block.size for block in self.whole) / self.mean_bytes

    @property
    def block_bytes(self) -> float:
        """The size of a large block, which decides about memory: the rests of files are smaller."""
        return float(quantiles((block.size for block in self.whole), n=10)[-1] if len(self.whole) > 1 else self.bytes)

    @property
    def small_bytes(self) -> float:
        return float(median(block.size for block in self.small))


def input_blocks(reader: FileReader) -> InputBlocks:
    """List the input of a reader. Raise `PlanError` if there is none, and `CapacityError` if its size is not known."""
    blocks = reader.source()
    if blocks is None:
        raise CapacityError(f"{reader.name!r} names no files: give the input with --data PATH")
    whole = _sized(reader, blocks)
    if not sum(block.size for block in whole):
        raise CapacityError(
            f"the input of {reader.name!r} is empty, or its size is not known ({len(whole):,} blocks): there is "
            "nothing to measure. Name other data with --data PATH"
        )
    usual = max(block.size for block in whole)
    files = list(reader.found.files)
    some = files[:: -(-len(files) // _FILES)]
    small = _sized(reader, numbered(reader.groups(some, min(int(usual), max(_LEAST, int(usual) // _PARTS)))))
    return InputBlocks([block for block in whole if block.size], [block for block in small if block.size])


def _sized(reader: FileReader, blocks: Sequence[FileBlock]) -> list[Sized]:
    sizes = reader.block_sizes(blocks)
    if len(sizes) != len(blocks):
        raise CapacityError(
            f"the sizes of the files of {reader.name!r} are not known, so a sample says nothing about the rest. "
            "Copy the data to a storage that reports sizes, or give a stored profile with --profile"
        )
    return [Sized(block.data, size) for block, size in zip(blocks, sizes, strict=True)]


def warm_up(blocks: InputBlocks, workers: int) -> list[Sized]:
    """Return the blocks of a first run, which loads what every run loads: a small one for each worker."""
    return _spread(blocks.small, workers, 0.1)


def small_sample(blocks: InputBlocks, most_bytes: float, workers: int) -> list[Sized]:
    """Return the blocks of the second run: small ones, two for each worker if that is not too much."""
    count = int(min(2 * workers, max(workers, most_bytes // (4 * blocks.small_bytes))))
    return _spread(blocks.small, count, 0.35)


def main_sample(blocks: InputBlocks, most_bytes: float, workers: int, used: int) -> list[Sized]:
    """Return the blocks of the last run. ``used``: bytes of the other runs.

    Small blocks come first, one for each worker, since the first task of a worker is slower. Whole blocks follow, and
    the rest are small ones, so that all workers are busy while the whole blocks are read.
    """
    if most_bytes >= blocks.bytes:
        return blocks.whole
    left = most_bytes - used
    large = [block for block in blocks.whole if block.size > 0.9 * blocks.block_bytes]
    full = int(_FULL * left // blocks.block_bytes) or int(left >= blocks.block_bytes)
    chosen = _spread(large, full, 0.5)
    left -= sum(block.size for block in chosen)
    count = max(int(left // blocks.small_bytes), workers if chosen else 4 * workers)
    small = _spread(blocks.small, count, 0.7)
    return small[:workers] + chosen + small[workers:]


def _spread(blocks: Sequence[Sized], count: int, at: float) -> list[Sized]:
    """Return blocks at equal distances; ``at``: where the first lies between two of them."""
    count = min(count, len(blocks))
    return [blocks[int((i + at) * len(blocks) / count)] for i in range(count)]
