"""Find pictures that are nearly equal, by hashes of 63 bits and thumbnails. Results depend on the order of pictures.

Each hash is in four bands of 16 bits. Of two hashes that differ in few bits at least one band differs in fewer: with a
largest distance of 12, in at most 3 bits of the first band or 2 of another. So all pairs within the distance are found
by looking up a band with these changes.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import combinations

from gristmill.kernels import compile as compiling
from gristmill.kernels.compile import Kernel
from gristmill.lazy import Array, np

FIND_NEAR = Kernel("thumbnail_kernels.find_near")
COMPARE_NEAR = Kernel("thumbnail_kernels.compare_near")

MOST_DISTANCE = 15
"""The largest distance: the number of changes of a band grows with its square and more."""
CELLS, SIDE = 80, 1280
BANDS, BAND_BITS = 4, 16
_SCRATCH = 520
MILLION = 1_000_000
INDEX_BYTES = 4 * BANDS
"""Of memory for each hash, beside the hash."""


def preload() -> None:
    """Load the kernels in a process from which others are forked."""
    compiling.preload([FIND_NEAR, COMPARE_NEAR])


def first_near(
    hashes: Array,
    thumbnails: Array,
    windows: Sequence[tuple[int, int, int]],
    most: int,
    least: float,
    known: int = 0,
) -> Array:
    """Return for each picture the first one before it that it is nearly equal to, and that is itself equal to none.

    Pictures are nearly equal if a hash of a window of one and the hash of the other differ in at most ``most`` bits,
    and the similarity of that window is at least ``least``. -1 stands for no picture.

    The first ``known`` pictures are not compared with each other, and then neither are the others.
    """
    count, width = hashes.shape
    lists = BANDS << BAND_BITS
    heads = np.full(lists * (2 if width > 1 else 1), -1, np.int32)
    nexts = np.empty(BANDS * count * (width + (1 if width > 1 else 0)), np.int32)
    out = np.full(count, -1, np.int64)
    FIND_NEAR(
        (np.ascontiguousarray(hashes).ravel(), np.ascontiguousarray(thumbnails).ravel(), _units(windows)),
        (count, width, known),
        (changes(), _ends(most), most, round(least * MILLION)),
        (heads, nexts),
        out,
        np.empty(_SCRATCH, np.int64),
    )
    return out


def compared(
    hashes: Array, thumbnails: Array, windows: Sequence[tuple[int, int, int]], most: int
) -> tuple[Array, Array]:
    """Return the distance of the hashes and the similarity of each pair of pictures: rows 2 n and 2 n + 1."""
    distances, similarities = np.empty((2, len(hashes) // 2), np.int64)
    COMPARE_NEAR(
        np.ascontiguousarray(hashes).ravel(),
        np.ascontiguousarray(thumbnails).ravel(),
        _units(windows),
        hashes.shape[1],
        most,
        distances,
        similarities,
        np.empty(_SCRATCH, np.int64),
    )
    return distances, similarities / MILLION


def _units(windows: Sequence[tuple[int, int, int]]) -> Array:
    return np.array(windows, np.int64).ravel() * (SIDE // CELLS)


@cache
def changes() -> Array:
    """Return all numbers of a band with few bits set, those with fewer bits first."""
    return np.array([sum(1 << bit for bit in bits) for n in range(4) for bits in combinations(range(BAND_BITS), n)])


@cache
def _ends(most: int) -> Array:
    """Return for each band the number of `changes` to look up, then the number of bits; -1 if it is not needed.

    If two hashes differed in more than these bits in every band, they would differ in more than ``most`` altogether.
    """
    bits = np.array([(most + 1 + BANDS - 1 - band) // BANDS - 1 for band in range(BANDS)])
    sizes = np.array([bin(value).count("1") for value in changes().tolist()])
    return np.concatenate([[int((sizes <= n).sum()) for n in bits], bits]).astype(np.int64)
