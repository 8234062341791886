"""Encoded bytes to headers and pixels, with Pillow.

All functions raise `BadImage` for bytes that are no image, or one that is too large, and nothing else.
"""

from __future__ import annotations

import io
import struct
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gristmill.images.errors import BadImage
from gristmill.lazy import Array, np

if TYPE_CHECKING:
    from PIL.Image import Image

MAX_PIXELS = 1 << 26
"""Images with more pixels (67 million) are refused by default, before memory is allocated for them."""
FORMATS = ("JPEG", "PNG", "WEBP", "AVIF", "GIF", "TIFF", "BMP", "PPM", "JPEG2000")
"""The formats that are read, as Pillow names them. Others are refused: some of Pillow's plugins start programs."""
SWAPPED = (5, 6, 7, 8)
"""EXIF orientations with width and height exchanged."""
_ORIENTATION = 0x0112
_WIDE_MODES = ("I;16", "I;16L", "I;16B", "I;16N", "I")


@dataclass(frozen=True, slots=True)
class Header:
    """What the first bytes of an image tell. Sizes are those of the image as people see it: with its orientation."""

    format: str
    width: int
    height: int
    mode: str
    frames: int
    orientation: int


def read_header(data: bytes | memoryview, max_pixels: int = MAX_PIXELS) -> Header:
    """Return the header of an image, without decoding pixels."""
    with _opened(data, max_pixels) as image:
        orientation = _orientation(image)
        width, height = image.size
        if orientation in SWAPPED:
            width, height = height, width
        frames = getattr(image, "n_frames", 1)  # Pillow has the attribute for some formats only
        return Header(str(image.format), width, height, image.mode, int(frames), orientation)


def decode(data: bytes | memoryview, short_side: int | None = None, max_pixels: int = MAX_PIXELS) -> Array:
    """Return the pixels of an image: uint8, (height, width, 3), RGB, upright. Of an animation the first frame.

    With ``short_side`` a JPEG is decoded at the smallest scale (1/1, 1/2, 1/4 or 1/8) at which its short side has at
    least so many pixels, which takes less time. Transparent pixels are shown on white.
    """
    with _opened(data, max_pixels) as image:
        orientation = _orientation(image)
        if short_side is not None and image.format == "JPEG":
            width, height = image.size
            scale = short_side / min(width, height)
            image.draft(None, (max(1, round(width * scale)), max(1, round(height * scale))))
        image.load()
        return _upright(np.asarray(_as_rgb(image)), orientation)


@contextmanager
def _opened(data: bytes | memoryview, max_pixels: int) -> Iterator[Image]:
    """Open an image. All that goes wrong with it inside becomes a `BadImage`."""
    from PIL import Image, UnidentifiedImageError

    if not len(data):
        raise BadImage("empty")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of sizes, which are checked here, and of damaged metadata
            with Image.open(io.BytesIO(data), formats=FORMATS) as image:
                width, height = image.size
                if width < 1 or height < 1:
                    raise BadImage("no pixels")
                if width * height > max_pixels:
                    raise BadImage("too many pixels")
                yield image
    except BadImage:
        raise
    except UnidentifiedImageError:
        raise BadImage("not an image of a known format") from None
    except Image.DecompressionBombError:
        raise BadImage("too many pixels") from None
    except MemoryError:
        raise
    except (OSError, EOFError) as error:
        raise BadImage("truncated" if "truncated" in str(error) or isinstance(error, EOFError) else "damaged") from None
    except (SyntaxError, ValueError, struct.error, IndexError, KeyError, TypeError, OverflowError, AttributeError):
        raise BadImage("damaged") from None  # what Pillow's decoders raise for bytes that make no sense


def _orientation(image: Image) -> int:
    """The EXIF orientation; 1 if there is none, or metadata that cannot be read."""
    try:
        found = image.getexif().get(_ORIENTATION, 1)
    except (SyntaxError, ValueError, struct.error, OSError, KeyError, TypeError, IndexError, OverflowError):
        return 1
    return found if found in range(1, 9) else 1


def _as_rgb(image: Image) -> Image:
    """The image in RGB with 8 bits, transparent pixels on white."""
    from PIL import Image

    if image.mode in _WIDE_MODES:
        wide = np.asarray(image).astype(np.int64)
        image = Image.fromarray(np.clip(wide >> 8, 0, 255).astype(np.uint8))
    elif image.mode == "F":
        image = Image.fromarray(np.clip(np.nan_to_num(np.asarray(image)), 0, 255).astype(np.uint8))
    if image.mode in ("RGBA", "LA", "PA", "RGBa", "La") or "transparency" in image.info:
        image = image.convert("RGBA")
        white = Image.new("RGBA", image.size, (255, 255, 255, 255))
        image = Image.alpha_composite(white, image)
    return image if image.mode == "RGB" else image.convert("RGB")


def _upright(pixels: Array, orientation: int) -> Array:
    """Pixels turned and mirrored as the EXIF orientation asks for."""
    if orientation in SWAPPED:
        pixels = pixels.transpose(1, 0, 2)
    if orientation in (2, 3, 6, 7):
        pixels = pixels[:, ::-1]
    if orientation in (3, 4, 7, 8):
        pixels = pixels[::-1]
    return np.ascontiguousarray(pixels)
