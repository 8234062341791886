"""The scores of filters of images, on images made for them."""

from __future__ import annotations

import math

import numpy as np
import pyarrow as pa
import pytest
from PIL import Image
from PIL import ImageFilter as Effects
from tests.images.made import busy, encoded, picture, samples, turned

from gristmill.images.pictures import Pictures
from gristmill.stages.image.filters import (
    AnimatedImageFilter,
    AspectRatioFilter,
    BlankImageFilter,
    BlurFilter,
    ColorfulnessFilter,
    ImageBytesFilter,
    ImageEntropyFilter,
    ImageFilter,
    ImageHeightFilter,
    ImageWidthFilter,
    PixelCountFilter,
    ShortSideFilter,
)
from gristmill.stages.image.filters.looks import sharpness
from gristmill.stages.registry import arguments_of, known
from gristmill.tasks import ImageBatch


def pictures(*images: bytes) -> Pictures:
    return Pictures.of(ImageBatch(data=pa.table({"image": pa.array(images, pa.large_binary())})))[1]


def scores(one: ImageFilter, *images: Image.Image | bytes) -> list[float]:
    made = [image if isinstance(image, bytes) else encoded(image, "PNG") for image in images]
    found = one.score_pictures(pictures(*made))
    assert not np.isnan(found.astype(float)).any()
    return found.tolist()


def kept(one: ImageFilter, *found: float) -> list[bool]:
    return one.keep_batch(np.array(found)).tolist()


WIDE = encoded(picture(400, 100), "PNG")
TURNED = encoded(picture(400, 100), "JPEG", exif=turned(6))


def test_sizes_are_those_of_the_upright_image():
    assert scores(ImageWidthFilter(), WIDE, TURNED) == [400, 100]
    assert scores(ImageHeightFilter(), WIDE, TURNED) == [100, 400]
    assert scores(ShortSideFilter(), WIDE, TURNED) == [100, 100]
    assert scores(PixelCountFilter(), WIDE, TURNED) == [40_000, 40_000]
    assert scores(AspectRatioFilter(), WIDE, TURNED, picture(96, 64)) == [4.0, 4.0, 1.5]
    assert scores(ImageBytesFilter(), WIDE, TURNED) == [len(WIDE), len(TURNED)]
    assert scores(AnimatedImageFilter(), WIDE, samples()["gif animated"], samples()["tiff pages"]) == [1, 3, 3]


@pytest.mark.parametrize(
    ("one", "inside", "outside", "reasons", "rule"),
    [
        (ImageWidthFilter(10, 20), (10, 20), (9, 21), ["too narrow", "too wide"], "a width of 10 to 20 pixels"),
        (ImageHeightFilter(10, 20), (10, 20), (9, 21), ["too low", "too high"], "a height of 10 to 20 pixels"),
        (ShortSideFilter(200), (200, 9e9), (199,), ["too small"], "a short side of at least 200 pixels"),
        (ShortSideFilter(0, 9), (1, 9), (10,), ["too large"], "a short side of at most 9 pixels"),
        (PixelCountFilter(9), (9,), (8,), ["too few pixels"], "a size of at least 9 pixels"),
        (PixelCountFilter(0, 9000), (9000,), (9001,), ["too many pixels"], "a size of at most 9,000 pixels"),
        (PixelCountFilter(), (1, 9e9), (), [], "a size of any number of pixels"),
        (ImageBytesFilter(), (5000,), (4999,), ["too few bytes"], "a file of at least 5,000 bytes"),
        (AspectRatioFilter(), (1.0, 3.0), (3.01,), ["aspect_ratio"], "a long side of at most 3 times the short one"),
        (AnimatedImageFilter(), (1,), (2,), ["animated_image"], "at most 1 frames"),
        (BlurFilter(100), (100.0,), (99.9,), ["blur"], "sharpness of at least 100"),
        (ImageEntropyFilter(2.5), (2.5,), (2.4,), ["image_entropy"], "at least 2.5 bits of entropy"),
        (BlankImageFilter(0.9), (0.9,), (0.91,), ["blank_image"], "at most 90% of the pixels equally bright"),
        (ColorfulnessFilter(5), (5.0,), (4.9,), ["colorfulness"], "colourfulness of at least 5"),
    ],
)
def test_limits_are_kept_and_what_is_beyond_has_a_reason(one, inside, outside, reasons, rule):
    assert kept(one, *inside) == [True] * len(inside)
    assert kept(one, *outside) == [False] * len(outside)
    found = one.reasons(np.array(outside))
    assert ([found] * len(outside) if isinstance(found, str) else list(found)) == reasons
    assert one.rule() == rule


def test_limits_in_the_wrong_order_are_refused():
    with pytest.raises(ValueError, match="ImageWidthFilter: the lower limit, 9, is above the upper one, 3"):
        ImageWidthFilter(9, 3)


def test_a_blurred_image_scores_less_the_more_it_is_blurred():
    image = busy(600, 400)
    blurred = [image.filter(Effects.GaussianBlur(radius)) for radius in (1, 2, 4, 8)]
    found = scores(BlurFilter(), image, *blurred, Image.new("RGB", (300, 300), "navy"))
    assert found == sorted(found, reverse=True)
    assert found[0] > 5 * found[2] and found[-1] == 0


def test_sharpness_is_the_variance_of_the_laplacian():
    rng = np.random.default_rng()
    grey = rng.integers(0, 256, (256, 256), dtype=np.uint8)  # of the size at which it is measured
    wide = grey.astype(float)
    laplacian = wide[:-2, 1:-1] + wide[2:, 1:-1] + wide[1:-1, :-2] + wide[1:-1, 2:] - 4 * wide[1:-1, 1:-1]
    assert sharpness(np.stack([grey] * 3, axis=-1)) == pytest.approx(laplacian.var(), rel=1e-9)


def test_sharpness_hardly_depends_on_the_size_of_the_file():
    image = busy(2000, 1500).filter(Effects.GaussianBlur(3))
    sizes = [image.resize((2000 // n, 1500 // n), Image.Resampling.LANCZOS) for n in (1, 2, 4)]
    found = scores(BlurFilter(), *sizes)
    assert max(found) < 3 * min(found)


@pytest.mark.parametrize("size", [(1, 1), (1, 60_000), (60_000, 1), (2, 2), (17, 300)])
def test_tiny_and_narrow_images_have_scores_too(size):
    for one in (BlurFilter(), ImageEntropyFilter(), BlankImageFilter(), ColorfulnessFilter(), AspectRatioFilter()):
        assert math.isfinite(scores(one, Image.new("RGB", size, "red"))[0])


def test_entropy_is_0_for_one_colour_and_8_for_all_levels():
    levels = Image.fromarray(np.arange(256, dtype=np.uint8).reshape(16, 16))
    two = Image.fromarray(np.array([[0, 255]] * 2, dtype=np.uint8))
    assert scores(ImageEntropyFilter(), Image.new("RGB", (50, 50), "red"), two, levels) == [0.0, 1.0, 8.0]


def test_a_blank_image_has_one_brightness():
    half = Image.fromarray(np.array([[0] * 4, [0] * 4, [200] * 4, [90] * 4], dtype=np.uint8))
    assert scores(BlankImageFilter(), Image.new("RGB", (50, 50), "white"), half) == [1.0, 0.5]


def test_colourfulness_is_0_for_grey_and_as_published():
    rng = np.random.default_rng()
    pixels = rng.integers(0, 256, (40, 50, 3), dtype=np.uint8)
    red, green, blue = (pixels[..., n].astype(float) for n in range(3))
    first, second = red - green, (red + green) / 2 - blue
    published = math.hypot(first.std(), second.std()) + 0.3 * math.hypot(first.mean(), second.mean())
    found = scores(ColorfulnessFilter(), busy().convert("L"), Image.fromarray(pixels), picture())
    assert found[0] == 0 and found[1] == pytest.approx(published, rel=1e-9) and found[2] > 100


def test_all_are_registered_and_their_thresholds_are_arguments():
    images = {name: cls for name, cls in known().items() if issubclass(cls, ImageFilter) and cls.builtin}
    assert len(images) >= 12
    for name, cls in images.items():
        one = cls()
        assert arguments_of(one) == {}, name
        for argument, (_, value) in one.threshold_values().items():
            assert cls(**{argument: value}).threshold_values()[argument][1] == value
        assert one.rule() and one.default_field == "image" and one.name


def test_a_filter_of_images_does_not_score_texts():
    with pytest.raises(TypeError, match="'blur' scores images, not texts"):
        BlurFilter().score_document("a text")
