"""Hashes of images depend on their pixels alone, and near copies have near hashes."""

from __future__ import annotations

import random

import numpy as np
import pytest

pytest.importorskip("PIL", reason="Pillow is not installed: pip install 'gristmill[image]'")

from gristmill.images import hashes
from gristmill.images.decode import decode
from gristmill.images.hashes import NO_HASH, bytes_hash, perceptual_hashes, pixels_hash, windows
from gristmill.kernels import thumbnail_kernels, thumbnails
from tests.images.pictures_made import animated, blank, cropped, encoded, picture, scaled, turned


def pixels(image) -> np.ndarray:
    return decode(encoded(image))


def distance(one: np.ndarray, other: np.ndarray) -> int:
    return bin(int(one ^ other)).count("1")


def test_equal_pixels_have_equal_hashes_in_any_lossless_format_and_turned_by_exif():
    image = picture(1)
    copies = [encoded(image), encoded(image, "WEBP", lossless=True), encoded(image, "BMP"), encoded(image, "TIFF")]
    copies += [turned(image, orientation) for orientation in (3, 6, 8)]
    assert len({pixels_hash(decode(copy)) for copy in copies}) == 1
    assert len({bytes_hash(copy) for copy in copies}) == len(copies)
    others = [encoded(image, "JPEG", quality=95), encoded(picture(2)), encoded(image.transpose(0))]
    assert len({pixels_hash(decode(copy)) for copy in [copies[0], *others]}) == 4


def test_the_shape_is_part_of_the_hash_of_pixels():
    row = np.arange(24, dtype=np.uint8)
    assert pixels_hash(row.reshape(2, 4, 3)) != pixels_hash(row.reshape(4, 2, 3))


def test_of_an_animation_the_first_frame_counts():
    assert pixels_hash(decode(animated([3, 4, 5]))) == pixels_hash(pixels(picture(3)))


def test_the_hash_of_a_picture_does_not_depend_on_the_others_of_its_batch():
    made = [pixels(picture(seed, 40 + seed, 90 - seed)) for seed in range(70)]
    whole = perceptual_hashes(made)
    alone = [perceptual_hashes([one]) for one in made]
    assert (whole.hashes == np.concatenate([one.hashes for one in alone])).all()
    assert (whole.thumbnails == np.concatenate([one.thumbnails for one in alone])).all()
    assert len(set(whole.hashes[:, 0].tolist())) == 70
    assert (perceptual_hashes(made, crops=False).hashes == whole.hashes[:, :1]).all()


def test_copies_are_near_and_other_pictures_far():
    seed = random.randrange(10**9)
    print("seed", seed)
    image = picture(seed, 400, 300)
    exact = [image, image.convert("L").convert("RGB")]
    near = [*exact, scaled(image, 0.5), scaled(image, 0.25)]
    near_pixels = [pixels(one) for one in near] + [decode(encoded(image, "JPEG", quality=q)) for q in (90, 60, 30)]
    found = perceptual_hashes([*near_pixels, pixels(picture(seed + 1, 400, 300))]).hashes[:, 0]
    assert distance(found[0], found[1]) == 0
    assert max(distance(found[0], one) for one in found[:-1]) <= 6
    assert distance(found[0], found[-1]) > 12


def test_a_crop_at_a_window_has_the_hash_of_the_window():
    image = picture(7, 400, 300)
    found = perceptual_hashes([pixels(image), pixels(cropped(image, 8 / 80, 16 / 80, 64 / 80))]).hashes
    window = windows().index((8, 16, 64))
    assert len(windows()) == 39 and windows(crops=False) == [(0, 0, 80)] == windows()[:1]
    assert distance(found[0, window], found[1, 0]) <= 4 < 12 < distance(found[0, 0], found[1, 0])


@pytest.mark.parametrize("image", [blank(), blank(0), blank(130, 1, 1), blank(7, 1, 300)])
def test_a_picture_without_contrast_has_no_hash(image):
    found = perceptual_hashes([pixels(image)])
    assert found.blank.all() and (found.hashes == NO_HASH).all()


def test_no_window_of_a_blank_picture_has_a_hash():
    faint = np.full((400, 400, 3), 255, np.uint8)
    faint[180:220, 180:220] -= 18  # the deviation of the whole is 1.8, of its middle 2.2
    assert (perceptual_hashes([faint]).hashes == NO_HASH).all()
    assert not (perceptual_hashes([faint[40:360, 40:360]]).hashes[:, 0] == NO_HASH).any()


def test_no_hash_of_a_picture_is_the_one_that_stands_for_none():
    found = perceptual_hashes([pixels(picture(seed)) for seed in range(20)])
    assert not (found.hashes >> np.uint64(63)).any() and not found.blank.any()


def test_pictures_of_any_shape_have_hashes():
    rng = np.random.default_rng(5)
    for height, width in ((1, 1), (1, 2), (2, 1), (3, 9), (1, 2000), (3000, 2), (257, 511), (512, 513)):
        found = perceptual_hashes([rng.integers(0, 256, (height, width, 3), dtype=np.uint8)])
        assert found.hashes.shape == (1, 39) and found.blank[0] == (height == width == 1)


def test_a_grid_holds_the_exact_averages_of_its_cells():
    rng = np.random.default_rng(6)
    for height, width in ((80, 80), (97, 130), (5, 300), (1, 1)):
        plane = rng.integers(0, 256, (height, width), dtype=np.uint8)
        fine = np.repeat(np.repeat(plane, 80, axis=0), 80, axis=1).astype(float)
        cells = fine.reshape(80, height, 80, width).mean(axis=(1, 3))
        assert np.abs(hashes._average(plane, 80, 4) - cells * 4).max() <= 0.5 + 1e-9


def test_kernels_and_hashes_agree_on_the_layout_of_thumbnails():
    assert (thumbnail_kernels.GREY, thumbnail_kernels.COLOUR) == (hashes.GREY, hashes.COLOUR)
    assert thumbnail_kernels.THUMBNAIL == hashes.THUMBNAIL_BYTES
    assert thumbnail_kernels._NO_HASH == NO_HASH and thumbnails.CELLS == hashes.CELLS
    kernels = thumbnail_kernels
    bits = (kernels.LONG_BITS,) * kernels.LONG + (kernels.SHORT_BITS,) * (kernels.BANDS - kernels.LONG)
    assert bits == thumbnails.BAND_BITS and sum(bits) == 63
    assert thumbnails.SIDE == thumbnail_kernels.SIDE and thumbnails.SIDE % hashes.CELLS == 0
