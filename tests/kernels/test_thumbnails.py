"""Near pictures are found exactly as by comparing each with each, and similarities are those of a plain model."""

from __future__ import annotations

import random

import numpy as np
import pytest

from gristmill.images.hashes import CELLS, GREY, NO_HASH, THUMBNAIL_BYTES, windows
from gristmill.kernels.thumbnails import compared, first_near

WHOLE = windows(crops=False)


def near_hashes(rng: np.random.Generator, count: int, width: int) -> np.ndarray:
    """Hashes of 63 bits in families: each differs from the first of its family in some bits."""
    bases = rng.integers(0, 1 << 63, (max(1, count // 8), width), dtype=np.uint64)
    hashes = bases[rng.integers(0, len(bases), count)]
    for row in range(count):
        for column in range(width):
            for bit in rng.permutation(63)[: rng.integers(0, 20)]:
                hashes[row, column] ^= np.uint64(1) << np.uint64(bit)
    hashes[rng.random((count, width)) < 0.02] = NO_HASH
    return hashes


def by_comparing_all(hashes: np.ndarray, most: int, is_near, known: int = 0) -> list[int]:
    """The first one that each is near to, of those before it that are near to none."""
    found: list[int] = []
    staying = list(range(known))
    for n in range(len(hashes)):
        first = -1 if n < known else next((m for m in staying if is_near(m, n)), -1)
        found.append(first)
        if first < 0 and n >= known and not known:
            staying.append(n)
    return found


def least_distance(hashes: np.ndarray, one: int, other: int) -> int:
    """The least distance of the whole picture of one and a window of the other."""
    pairs = [(hashes[a, 0], hashes[b, w]) for w in range(hashes.shape[1]) for a, b in ((one, other), (other, one))]
    return min((bin(int(a ^ b)).count("1") for a, b in pairs if NO_HASH not in (a, b)), default=64)


@pytest.mark.parametrize("width", [1, 3])
@pytest.mark.parametrize("most", [0, 1, 2, 3, 7, 12, 15])
def test_all_pairs_within_the_distance_are_found(width, most):
    seed = random.randrange(10**9)
    print("seed", seed)
    rng = np.random.default_rng(seed)
    hashes = near_hashes(rng, 250, width)
    thumbnails = rng.integers(0, 256, (250, THUMBNAIL_BYTES), dtype=np.uint8)
    some = windows()[:width]

    def is_near(one: int, other: int) -> bool:
        return least_distance(hashes, one, other) <= most

    found = first_near(hashes, thumbnails, some, most, -1.0)
    assert found.tolist() == by_comparing_all(hashes, most, is_near)
    assert (found >= 0).any() or most < 3
    known = first_near(hashes, thumbnails, some, most, -1.0, known=100)
    assert known.tolist() == by_comparing_all(hashes, most, is_near, known=100)


def test_pictures_are_near_if_a_window_within_the_distance_is_similar_enough():
    seed = random.randrange(10**9)
    print("seed", seed)
    rng = np.random.default_rng(seed)
    count, most, least = 150, 12, 0.97
    hashes = near_hashes(rng, count, 3)
    bases = rng.integers(0, 256, (5, THUMBNAIL_BYTES))
    noise = rng.integers(-60, 61, (count, THUMBNAIL_BYTES)) * rng.random((count, 1))
    thumbnails = np.clip(bases[rng.integers(0, 5, count)] + noise, 0, 255).astype(np.uint8)

    def is_near(one: int, other: int) -> bool:
        pair = [one, other]
        distance, similar = compared(hashes[pair], thumbnails[pair], windows()[:3], most)
        return distance[0] <= most and similar[0] >= least

    found = first_near(hashes, thumbnails, windows()[:3], most, least)
    assert found.tolist() == by_comparing_all(hashes, most, is_near)
    loose = first_near(hashes, thumbnails, windows()[:3], most, -1.0)
    assert 0 < (found >= 0).sum() < (loose >= 0).sum()


def grey_thumbnail(grey: np.ndarray, red: int = 128) -> np.ndarray:
    planes = np.full((2, 64), 128)
    planes[1] = red
    return np.concatenate([grey.ravel(), planes.ravel()]).astype(np.uint8)


def similarity_of(one: np.ndarray, other: np.ndarray) -> float:
    hashes = np.ones((2, 1), np.uint64)
    return float(compared(hashes, np.stack([one, other]), WHOLE, 12)[1][0])


def test_the_similarity_is_the_correlation_of_grey_values_in_blocks_of_two_by_two():
    rng = np.random.default_rng(random.randrange(10**9))
    one = rng.integers(0, 256, (GREY, GREY))
    other = np.clip(one + rng.integers(-70, 71, (GREY, GREY)), 0, 255)
    blocks = [values.reshape(16, 2, 16, 2).mean(axis=(1, 3)).ravel() for values in (one, other)]
    expected = np.corrcoef(*blocks)[0, 1]
    assert abs(similarity_of(grey_thumbnail(one), grey_thumbnail(other)) - expected) < 1e-4
    assert similarity_of(grey_thumbnail(one), grey_thumbnail(one // 2 + 40)) > 0.999  # brightness and contrast
    assert similarity_of(grey_thumbnail(one), grey_thumbnail(255 - one)) == pytest.approx(0, abs=1e-9)


def test_pictures_of_other_colours_are_not_similar_but_grey_ones_are():
    grey = np.random.default_rng(1).integers(0, 256, (GREY, GREY))
    assert similarity_of(grey_thumbnail(grey, 200), grey_thumbnail(grey, 60)) == 0
    assert similarity_of(grey_thumbnail(grey, 200), grey_thumbnail(grey, 195)) == 1
    assert similarity_of(grey_thumbnail(grey, 200), grey_thumbnail(grey)) == 1


def test_edges_of_a_window_are_moved_to_where_the_pictures_agree():
    rng = np.random.default_rng(2)
    fine = np.kron(rng.integers(0, 256, (20, 20)), np.ones((16, 16)))  # 320 x 320
    smooth = np.stack([np.convolve(row, np.ones(24) / 24, "same") for row in fine])
    smooth = np.stack([np.convolve(row, np.ones(24) / 24, "same") for row in smooth.T]).T

    def small(values: np.ndarray) -> np.ndarray:
        side = len(values) // GREY
        return grey_thumbnail(values[: side * GREY, : side * GREY].reshape(GREY, side, GREY, side).mean(axis=(1, 3)))

    crop = smooth[11 : 11 + 288, 19 : 19 + 288]  # 90 %, between two windows
    some = [(0, 0, CELLS), (4, 4, 72)]
    hashes = np.array([[0, 1 << 40], [1 << 40, 0xFFFFFFFF]], np.uint64)
    distances, similar = compared(hashes, np.stack([small(smooth), small(crop)]), some, 0)
    assert distances[0] == 0 and similar[0] > 0.99
    fixed = np.array([[0, 0xFFFFFFFF], [0, 0xFFFFFFFF]], np.uint64)
    assert compared(fixed, np.stack([small(smooth), small(crop)]), some, 0)[1][0] < 0.9


def test_plain_pictures_have_no_similarity():
    plain = grey_thumbnail(np.full((GREY, GREY), 100))
    assert similarity_of(plain, plain) == 0


def test_no_pictures():
    found = first_near(np.zeros((0, 39), np.uint64), np.zeros((0, THUMBNAIL_BYTES), np.uint8), windows(), 12, 0.97)
    assert found.tolist() == []
