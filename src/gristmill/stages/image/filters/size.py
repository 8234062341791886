"""Filters by what the header of an image tells, and by its encoded size. No pixels are decoded.

Widths and heights are those of the image as people see it: turned as its EXIF orientation asks for.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from gristmill.images.decode import Header
from gristmill.images.pictures import Pictures
from gristmill.lazy import Array, np
from gristmill.stages.image.filters.base import ImageFilter
from gristmill.stages.registry import builtin
from gristmill.stages.text.filters.document_filter import AtMost, InRange

__all__ = [
    "AnimatedImageFilter",
    "AspectRatioFilter",
    "ImageBytesFilter",
    "ImageHeightFilter",
    "ImageWidthFilter",
    "PixelCountFilter",
    "ShortSideFilter",
]


class _SizeFilter(ImageFilter, InRange):
    """Keeps images whose size in some unit is in a range."""

    needs_pixels = False
    what = ""
    unit = ""

    def __init__(self, least: float, most: float) -> None:
        if not least <= most:
            raise ValueError(f"{type(self).__name__}: the lower limit, {least!r}, is above the upper one, {most!r}.")
        self.least = least
        self.most = most

    def rule(self) -> str:
        if self.most == math.inf and self.least <= 0:
            return f"{self.what} of any number of {self.unit}"
        if self.most == math.inf:
            return f"{self.what} of at least {self.least:,} {self.unit}"
        if self.least <= 0:
            return f"{self.what} of at most {self.most:,} {self.unit}"
        return f"{self.what} of {self.least:,} to {self.most:,} {self.unit}"


def _of_headers(pictures: Pictures, measure: Callable[[Header], float]) -> Array:
    return np.array([measure(header) for header in pictures.headers], dtype=np.int64)


@builtin
class ImageWidthFilter(_SizeFilter):
    """Keeps images of ``min_width`` to ``max_width`` pixels."""

    what, unit = "a width", "pixels"
    below, above = "too narrow", "too wide"
    thresholds = {"min_width": "least", "max_width": "most"}

    def __init__(self, min_width: float = 0, max_width: float = math.inf) -> None:
        super().__init__(min_width, max_width)

    def score_pictures(self, pictures: Pictures) -> Array:
        return _of_headers(pictures, lambda header: header.width)


@builtin
class ImageHeightFilter(_SizeFilter):
    """Keeps images with a height of ``min_height`` to ``max_height`` pixels."""

    what, unit = "a height", "pixels"
    below, above = "too low", "too high"
    thresholds = {"min_height": "least", "max_height": "most"}

    def __init__(self, min_height: float = 0, max_height: float = math.inf) -> None:
        super().__init__(min_height, max_height)

    def score_pictures(self, pictures: Pictures) -> Array:
        return _of_headers(pictures, lambda header: header.height)


@builtin
class ShortSideFilter(_SizeFilter):
    """Keeps images whose shorter side has ``min_side`` to ``max_side`` pixels (DataComp: at least 200)."""

    what, unit = "a short side", "pixels"
    below, above = "too small", "too large"
    thresholds = {"min_side": "least", "max_side": "most"}

    def __init__(self, min_side: float = 200, max_side: float = math.inf) -> None:
        super().__init__(min_side, max_side)

    def score_pictures(self, pictures: Pictures) -> Array:
        return _of_headers(pictures, lambda header: min(header.width, header.height))


@builtin
class PixelCountFilter(_SizeFilter):
    """Keeps images of ``min_pixels`` to ``max_pixels`` pixels, width times height."""

    what, unit = "a size", "pixels"
    below, above = "too few pixels", "too many pixels"
    thresholds = {"min_pixels": "least", "max_pixels": "most"}

    def __init__(self, min_pixels: float = 0, max_pixels: float = math.inf) -> None:
        super().__init__(min_pixels, max_pixels)

    def score_pictures(self, pictures: Pictures) -> Array:
        return _of_headers(pictures, lambda header: header.width * header.height)


@builtin
class ImageBytesFilter(_SizeFilter):
    """Keeps images whose encoded size is ``min_bytes`` to ``max_bytes`` bytes (LAION: at least 5 KB)."""

    what, unit = "a file", "bytes"
    below, above = "too few bytes", "too many bytes"
    thresholds = {"min_bytes": "least", "max_bytes": "most"}

    def __init__(self, min_bytes: float = 5000, max_bytes: float = math.inf) -> None:
        super().__init__(min_bytes, max_bytes)

    def score_pictures(self, pictures: Pictures) -> Array:
        return pictures.sizes


@builtin
class AspectRatioFilter(ImageFilter, AtMost):
    """Keeps images whose longer side is at most ``max_ratio`` times the shorter one (DataComp: 3)."""

    needs_pixels = False
    rule_text = "a long side of at most {0.most:g} times the short one"
    thresholds = {"max_ratio": "most"}

    def __init__(self, max_ratio: float = 3.0) -> None:
        self.most = max_ratio

    def score_pictures(self, pictures: Pictures) -> Array:
        sides = np.array([(one.width, one.height) for one in pictures.headers], dtype=np.float64).reshape(-1, 2)
        ratios: Array = sides.max(axis=1) / sides.min(axis=1)
        return ratios


@builtin
class AnimatedImageFilter(ImageFilter, AtMost):
    """Keeps images of at most ``max_frames`` frames, or pages: by default those that are not animated."""

    needs_pixels = False
    rule_text = "at most {0.most} frames"
    thresholds = {"max_frames": "most"}

    def __init__(self, max_frames: int = 1) -> None:
        self.most = max_frames

    def score_pictures(self, pictures: Pictures) -> Array:
        return _of_headers(pictures, lambda header: header.frames)
