"""Decode JPEG with simplejpeg: the same pixels as Pillow's in two thirds of the time.

It is asked first, and tells Pillow's silent failure: data that end before all pixels are known, and an end marker after
them. Pillow makes the rest grey. For everything else that simplejpeg complains about, Pillow's verdict counts.
"""

from __future__ import annotations

import functools
import io
from collections.abc import Callable
from typing import TypeAlias

from gristmill.images.errors import BadImage
from gristmill.images.pillow import pillow
from gristmill.lazy import Array, np

Decoder: TypeAlias = "Callable[[bytes | memoryview, str, tuple[int, int]], Array | None]"

COLOURS = {"RGB": "RGB", "L": "GRAY", "CMYK": "CMYK"}
"""The name in simplejpeg of each mode that Pillow has for a JPEG."""
NO_MORE_DATA = "premature end of data segment"
"""How the JPEG library calls data that end before all pixels are known."""


@functools.cache
def decoder() -> Decoder | None:
    """Return the function that decodes a JPEG in a mode of Pillow to a size; None if simplejpeg is not installed.

    It returns None for what Pillow is to decode: modes other than RGB and L, and everything odd. If simplejpeg gives
    other pixels than Pillow, as another version of the JPEG library in either of them might, this is everything.
    """
    try:
        import simplejpeg
    except ImportError:
        return None

    def decode(data: bytes | memoryview, mode: str, size: tuple[int, int]) -> Array | None:
        """Return the RGB pixels of a JPEG in the size of one of its scales. Raise `BadImage` if some are missing."""
        if mode not in COLOURS:
            return None
        width, height = size
        try:
            pixels: Array = simplejpeg.decode_jpeg(data, COLOURS[mode], min_height=height, min_width=width)
        except ValueError as error:
            if NO_MORE_DATA in str(error):
                raise BadImage("truncated") from None
            return None
        if mode == "CMYK" or pixels.shape[:2] != (height, width):
            return None
        return pixels if mode == "RGB" else np.repeat(pixels, 3, axis=2)

    def check(data: bytes | memoryview, mode: str, size: tuple[int, int]) -> None:
        decode(data, mode, size)

    return decode if _agrees(decode) else check


def _agrees(decode: Decoder) -> bool:
    """Whether the pixels of a sample are Pillow's, in colour and grey, at each scale."""
    image = pillow()
    for mode in ("RGB", "L"):
        data = _sample(mode)
        for scale in (1, 2, 4, 8):
            with image.open(io.BytesIO(data)) as opened:
                opened.draft(None, (opened.width // scale, opened.height // scale))
                pixels = decode(data, mode, opened.size)
                if pixels is None or not np.array_equal(np.asarray(opened.convert("RGB")), pixels):
                    return False
    return True


def _sample(mode: str) -> bytes:
    """Return a JPEG with fine structure, and colours in half the resolution, where versions of a decoder may differ."""
    y, x = np.mgrid[0:240, 0:320]
    noise = (y * y * 7 + x * y * 13 + x * x * 5) >> 3 & 63
    pixels = np.stack([x * 3 // 4 + noise, y + noise // 2, 255 - (x + y) // 3], axis=-1).clip(0, 255).astype(np.uint8)
    made = io.BytesIO()
    pillow().fromarray(pixels).convert(mode).save(made, "JPEG", quality=80)
    return made.getvalue()
