"""Filters by simple measures of pixels: sharpness, contrast and colours.

The measures are computed in whole numbers up to the last step, so that they are the same on all machines.
"""

from __future__ import annotations

import math

from gristmill.images.pictures import Pictures
from gristmill.images.pillow import pillow
from gristmill.lazy import Array, np
from gristmill.stages.image.filters.base import ImageFilter
from gristmill.stages.registry import builtin
from gristmill.stages.text.filters.document_filter import AtLeast, AtMost

__all__ = ["BlankImageFilter", "BlurFilter", "ColorfulnessFilter", "ImageEntropyFilter"]

SHARPNESS_PIXELS = 1 << 16
"""The size, 256 x 256 if it is square, at which sharpness is measured."""
LEAST_SIDE = 16
"""Of an image that is resized for that."""
BLANK_LEVELS = 32


@builtin
class BlurFilter(ImageFilter, AtLeast):
    """Keeps images that are at least as sharp as ``min_sharpness``: the variance of their Laplacian.

    It is measured on the brightness of the image, resized to about 65,536 pixels in its own shape, so that the same
    image has about the same score in all sizes above that. A small image is enlarged, and counts as blurred.
    """

    rule_text = "sharpness of at least {0.least:g}"
    thresholds = {"min_sharpness": "least"}

    def __init__(self, min_sharpness: float = 100.0) -> None:
        self.least = min_sharpness

    def score_pictures(self, pictures: Pictures) -> Array:
        return pictures.measured(sharpness)


@builtin
class ImageEntropyFilter(ImageFilter, AtLeast):
    """Keeps images whose brightness has at least ``min_bits`` bits of entropy: 0 for one colour, at most 8."""

    rule_text = "at least {0.least:g} bits of entropy"
    thresholds = {"min_bits": "least"}

    def __init__(self, min_bits: float = 2.0) -> None:
        self.least = min_bits

    def score_pictures(self, pictures: Pictures) -> Array:
        return pictures.measured(entropy)


@builtin
class BlankImageFilter(ImageFilter, AtMost):
    """Keeps images in which at most ``max_share`` of the pixels have the same brightness, in 32 levels."""

    rule_text = "at most {0.percent} of the pixels equally bright"
    thresholds = {"max_share": "most"}

    def __init__(self, max_share: float = 0.95) -> None:
        self.most = max_share

    def score_pictures(self, pictures: Pictures) -> Array:
        return pictures.measured(blank_share)


@builtin
class ColorfulnessFilter(ImageFilter, AtLeast):
    """Keeps images whose colourfulness is at least ``min_colorfulness``: 0 for grey, above 100 for very colourful ones.

    The measure is that of Hasler and Suesstrunk, "Measuring colourfulness in natural images", 2003.
    """

    rule_text = "colourfulness of at least {0.least:g}"
    thresholds = {"min_colorfulness": "least"}

    def __init__(self, min_colorfulness: float = 5.0) -> None:
        self.least = min_colorfulness

    def score_pictures(self, pictures: Pictures) -> Array:
        return pictures.measured(colorfulness)


def sharpness(pixels: Array) -> float:
    """Return the variance of the Laplacian of the brightness at a fixed size."""
    height, width = pixels.shape[:2]
    scale = math.sqrt(SHARPNESS_PIXELS / (width * height))
    most = SHARPNESS_PIXELS // LEAST_SIDE
    size = tuple(min(most, max(LEAST_SIDE, round(side * scale))) for side in (width, height))
    pil = pillow()
    grey = np.asarray(pil.fromarray(pixels).convert("L").resize(size, pil.Resampling.BILINEAR)).astype(np.int32)
    inside = grey[1:-1, 1:-1]
    edges = grey[:-2, 1:-1] + grey[2:, 1:-1] + grey[1:-1, :-2] + grey[1:-1, 2:] - 4 * inside
    return _variance(edges)


def entropy(pixels: Array) -> float:
    """Return the bits of entropy of the brightness."""
    counts = _histogram(pixels)
    total = sum(counts)
    return max(0.0, -sum(count / total * math.log2(count / total) for count in counts if count))


def blank_share(pixels: Array) -> float:
    """Return the share of the pixels with the most frequent brightness."""
    levels = np.array(_histogram(pixels)).reshape(BLANK_LEVELS, -1).sum(axis=1)
    return float(levels.max() / levels.sum())


def colorfulness(pixels: Array) -> float:
    """Return the colourfulness: how far colours are from grey, and how different from each other."""
    red, green, blue = (pixels[:, :, number].astype(np.int32) for number in range(3))
    red_green, yellow_blue = red - green, red + green - 2 * blue  # the second is twice the published one
    spread = math.sqrt(_variance(red_green) + _variance(yellow_blue) / 4)
    return spread + 0.3 * math.hypot(_mean(red_green), _mean(yellow_blue) / 2)


def _histogram(pixels: Array) -> list[int]:
    counts: list[int] = pillow().fromarray(pixels).convert("L").histogram()
    return counts


def _mean(values: Array) -> float:
    return int(values.sum(dtype=np.int64)) / values.size


def _variance(values: Array) -> float:
    total = int(values.sum(dtype=np.int64))
    squares = int(np.square(values, dtype=np.int64).sum())
    return (squares * values.size - total * total) / (values.size * values.size)
