"""Find pictures that are nearly equal, by hashes of 63 bits and thumbnails. Results depend on the order of pictures.

Each hash is in five bands of 13 or 12 bits. Of two hashes that differ in few bits at least one band differs in fewer:
with a largest distance of 12, in at most 2 bits of one of the first three bands or 1 of another. So all pairs within
the distance are found by looking up a band with these changes. The hashes with the same band are next to each other in
memory: most of them are too far away, and to see that must not take a jump for each.
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
BAND_BITS = (13, 13, 13, 12, 12)
BANDS, LIST_BITS = len(BAND_BITS), max(BAND_BITS)
_SCRATCH = 520
MILLION = 1_000_000
INDEX_BYTES = 12 * BANDS
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
    parts = 2 if width > 1 else 1
    entries = BANDS * (known or count) * (width + parts - 1)
    if entries > np.iinfo(np.int32).max:
        raise ValueError(f"{known or count:,} pictures are too many to compare at a time.")
    out = np.empty(count, np.int64)
    FIND_NEAR(
        (np.ascontiguousarray(hashes).ravel(), np.ascontiguousarray(thumbnails).ravel(), _units(windows)),
        (width, known),
        (*_search(most), most, round(least * MILLION)),
        (
            np.zeros((parts * BANDS << LIST_BITS) + 1, np.int32),
            np.empty(entries, np.uint64),
            np.empty(entries, np.int32),
        ),
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
def _search(most: int) -> tuple[Array, Array, Array]:
    """Return the changes of bands to look up, for each band the range of its changes, and its most changed bits.

    If two hashes differed in more than these bits in every band, they would differ in more than ``most`` altogether.
    The most bits are -1 for a band that need not be looked up.
    """
    radii = [(most + 1 + BANDS - 1 - band) // BANDS - 1 for band in range(BANDS)]
    changes: list[int] = []
    ranges: list[int] = []
    for bits, radius in zip(BAND_BITS, radii, strict=True):
        begin = len(changes)
        changes += [sum(1 << bit for bit in some) for n in range(radius + 1) for some in combinations(range(bits), n)]
        ranges += [begin, len(changes)]
    return np.array(changes, np.int64), np.array(ranges, np.int64), np.array(radii, np.int64)
