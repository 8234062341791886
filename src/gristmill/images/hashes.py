"""Hashes of images: exact ones of bytes and of pixels, and perceptual ones, with thumbnails that verify them.

All arithmetic is on whole numbers (sums of floats that hold integers exactly), so equal pixels give equal hashes on
every machine. Pixels of JPEG, WebP and AVIF come from decoders that may round differently in other versions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from hashlib import blake2b
from typing import TYPE_CHECKING

from gristmill.lazy import Array, np

if TYPE_CHECKING:
    from PIL.Image import Image

CELLS = 80
"""Cells of the grid, in a row and in a column, that hashes are computed from."""
GREY, COLOUR = 32, 8
"""Rows and columns of the thumbnail: of its grey values, and of each of its two planes of colour."""
THUMBNAIL_BYTES = GREY * GREY + 2 * COLOUR * COLOUR
BITS = 63
NO_HASH = 1 << 63
"""The hash of a window without contrast. Its bit is set in no other hash."""
BLANK = 2.0
"""The standard deviation of grey values, of 255, below which a picture or a window has no hash."""
_SIZES = ((80, (0,)), (76, (0, 4)), (72, (0, 4, 8)), (64, (0, 4, 8, 12, 16)))
"""Windows of the grid: their size, and the cells where they begin in each direction."""
_SHRUNK, _SHRUNK_COLOURS = 256, 32
_AT_ONCE = 64
_COSINE = 1 << 12
_FREQUENCIES = 8
_QUARTERS = 4
"""The grid counts in quarters of a grey value."""


def bytes_hash(data: bytes | memoryview) -> bytes:
    """Return 16 bytes that are the same for images with equal encoded bytes."""
    return blake2b(data, digest_size=16).digest()


def pixels_hash(pixels: Array) -> bytes:
    """Return 16 bytes that are the same for pictures of one size with equal pixels."""
    digest = blake2b(np.array(pixels.shape, "<i8").tobytes(), digest_size=16)
    digest.update(np.ascontiguousarray(pixels).data)
    return digest.digest()


def windows(crops: bool = True) -> list[tuple[int, int, int]]:
    """Return the windows that are hashed: column, row and size in cells. The first one is the whole picture."""
    sizes = _SIZES if crops else _SIZES[:1]
    return [(x, y, size) for size, begins in sizes for y in begins for x in begins]


@dataclass(frozen=True)
class PerceptualHashes:
    """What near-equal pictures are found and compared by."""

    hashes: Array
    """``uint64``, a row for each picture, a column for each of `windows`."""
    thumbnails: Array
    """``uint8``, a row for each picture: grey values, then the two planes of colour (Cb, Cr)."""
    blank: Array
    """Which pictures have too little contrast: all of their hashes are `NO_HASH`."""


def perceptual_hashes(pictures: Sequence[Array], crops: bool = True) -> PerceptualHashes:
    """Return the perceptual hashes of pictures: pixels of shape (height, width, 3), upright, of any size.

    A hash has a bit for each of the 63 lowest frequencies (8 x 8 without the mean) of the discrete cosine transform of
    the grey values: whether it is above the median. ``crops`` hashes windows of the picture too, by which a crop of it
    is found.
    """
    wanted = windows(crops)
    hashes = np.empty((len(pictures), len(wanted)), np.uint64)
    thumbnails = np.empty((len(pictures), THUMBNAIL_BYTES), np.uint8)
    blank = np.empty(len(pictures), bool)
    small = _area(CELLS, GREY)
    for begin in range(0, len(pictures), _AT_ONCE):
        some = slice(begin, begin + _AT_ONCE)
        averages = [_averages(pixels) for pixels in pictures[some]]
        grids = np.stack([grey for grey, _ in averages])
        hashes[some], blank[some] = _hashes(grids, wanted)
        grey = np.rint(small @ grids @ small.T / (_QUARTERS * CELLS * CELLS))
        thumbnails[some, : GREY * GREY] = grey.reshape(len(grids), -1)
        thumbnails[some, GREY * GREY :] = [colours for _, colours in averages]
    hashes[blank] = NO_HASH
    return PerceptualHashes(hashes, thumbnails, blank)


def _averages(pixels: Array) -> tuple[Array, Array]:
    """Return the grid of grey values, in quarters, and the thumbnails of the planes of colour, one after the other."""
    from PIL import Image as images

    image = _reduced(images.fromarray(pixels), _SHRUNK)
    grey = _average(np.asarray(image.convert("L")), CELLS, _QUARTERS)
    planes = _reduced(image, _SHRUNK_COLOURS).convert("YCbCr").split()[1:]
    return grey, np.concatenate([_average(np.asarray(plane), COLOUR, 1).ravel() for plane in planes])


def _reduced(image: Image, least: int) -> Image:
    """Return the image with both sides shrunk to less than twice ``least``, by averages of whole pixels."""
    factors = (max(1, image.width // least), max(1, image.height // least))
    return image if factors == (1, 1) else image.reduce(factors)


def _average(plane: Array, cells: int, scale: int) -> Array:
    """Return the averages of the cells of a square grid, times ``scale``, rounded."""
    sums = _sums(_sums(plane, cells).T, cells).T
    averages: Array = np.rint(sums * scale / plane.size)
    return averages


def _sums(values: Array, cells: int) -> Array:
    """Return the sums of the rows in each cell, times ``cells``. A row across an edge counts by its shares."""
    edges = np.arange(cells + 1) * len(values)
    whole, share = edges // cells, edges % cells
    before = np.zeros((len(values) + 1, values.shape[1]), np.int64)
    np.cumsum(values, axis=0, out=before[1:])
    inside = values[np.minimum(whole, len(values) - 1)] * share[:, None]
    sums: Array = np.diff(before[whole] * cells + inside, axis=0)
    return sums


@cache
def _area(length: int, cells: int) -> Array:
    """Return how much of each cell each pixel covers, in units in which a pixel is ``cells`` long."""
    pixel, cell = np.arange(length)[None, :] * cells, np.arange(cells)[:, None] * length
    overlap = np.minimum(pixel + cells, cell + length) - np.maximum(pixel, cell)
    weights: Array = np.maximum(overlap, 0).astype(np.float64)
    return weights


def _hashes(grids: Array, wanted: Sequence[tuple[int, int, int]]) -> tuple[Array, Array]:
    """Return the hash of each window of each grid, and which grids are blank."""
    strips = sorted({(begin, size) for x, y, size in wanted for begin in (x, y)})
    waves = np.concatenate([_waves(begin, size) for begin, size in strips])
    found = waves @ grids @ waves.T
    hashes = np.empty((len(grids), len(wanted)), np.uint64)
    rows = {strip: slice(n * _FREQUENCIES, (n + 1) * _FREQUENCIES) for n, strip in enumerate(strips)}
    deviations = _deviations(grids, wanted)
    for n, (x, y, size) in enumerate(wanted):
        block = found[:, rows[y, size], rows[x, size]].reshape(len(grids), -1)[:, 1:]
        bits = block > np.partition(block, BITS // 2, axis=1)[:, BITS // 2, None]
        hashes[:, n] = _packed(bits)
        hashes[deviations[:, n] < BLANK, n] = NO_HASH
    return hashes, deviations[:, 0] < BLANK


def _packed(bits: Array) -> Array:
    """Return the bits of each row as a number, the first one lowest."""
    whole = np.zeros((len(bits), 64), bool)
    whole[:, :BITS] = bits
    packed: Array = np.packbits(whole, axis=1, bitorder="little").view("<u8")[:, 0]
    return packed


@cache
def _waves(begin: int, size: int) -> Array:
    """Return cosines over a range of cells, as whole numbers; 0 outside of it."""
    waves = np.zeros((_FREQUENCIES, CELLS))
    places = np.arange(size) + 0.5
    cosines = np.cos(np.pi / size * np.arange(_FREQUENCIES)[:, None] * places[None, :])
    waves[:, begin : begin + size] = np.rint(cosines * _COSINE)
    return waves


def _deviations(grids: Array, wanted: Sequence[tuple[int, int, int]]) -> Array:
    """Return the standard deviation of each window of each grid, in grey values: from sums of whole numbers."""
    sums, squares = (np.pad(values, ((0, 0), (1, 0), (1, 0))) for values in (grids, np.square(grids)))
    found = np.empty((len(grids), len(wanted)))
    for values in (sums, squares):
        np.cumsum(values, axis=1, out=values)
        np.cumsum(values, axis=2, out=values)
    for n, (x, y, size) in enumerate(wanted):
        of_values, of_squares = (
            all_[:, y + size, x + size] - all_[:, y, x + size] - all_[:, y + size, x] + all_[:, y, x]
            for all_ in (sums, squares)
        )
        count = size * size
        found[:, n] = np.sqrt(np.maximum(of_squares * count - of_values * of_values, 0)) / (count * _QUARTERS)
    return found
