"""Encoded bytes to headers and pixels, with Pillow.

All functions raise `BadImage` for bytes that are no image, or one that is too large, and nothing else.
"""

from __future__ import annotations

import io
import math
import struct
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from gristmill.images import jpeg
from gristmill.images.errors import BadImage
from gristmill.images.pillow import pillow, settings
from gristmill.lazy import Array, np

if TYPE_CHECKING:
    from PIL.Image import Image

Raw: TypeAlias = "bytes | memoryview"

MAX_PIXELS = 1 << 26
"""Images with more pixels (67 million) are refused by default, before memory is allocated for them."""
LONGEST = 16
"""Images that are longer than this many times their short side are reduced more than their short side asks for."""
MOST_SCANS = 500
"""A progressive JPEG with more scans is refused: a few bytes for each make a decoder work for minutes."""
FORMATS = ("JPEG", "PNG", "WEBP", "AVIF", "GIF", "TIFF", "BMP", "PPM", "JPEG2000")
"""The formats that are read, as Pillow names them. Others are refused: some of Pillow's plugins start programs."""
SWAPPED = (5, 6, 7, 8)
"""EXIF orientations with width and height exchanged."""
_ORIENTATION = 0x0112
_WIDE_MODES = ("I;16", "I;16L", "I;16B", "I;16N", "I")
_TRANSPARENT_MODES = ("RGBA", "LA", "PA", "RGBa", "La")
_SENSELESS = (
    *(ArithmeticError, AssertionError, AttributeError, LookupError, NotImplementedError, RuntimeError, SyntaxError),
    *(TypeError, ValueError, struct.error, zlib.error),
)
"""What Pillow's decoders raise for bytes that make no sense, beside OSError."""


@dataclass(frozen=True, slots=True)
class Header:
    """What the first bytes of an image tell. Sizes are those of the image as people see it: with its orientation."""

    format: str
    width: int
    height: int
    mode: str
    frames: int
    orientation: int
    """The EXIF orientation that `decode` applies. Always 1 for TIFF, whose orientation Pillow applies."""


def read_header(data: bytes | memoryview, max_pixels: int = MAX_PIXELS) -> Header:
    """Return the header of an image, without decoding pixels."""
    raw = _raw(data)
    with _opened(raw, max_pixels) as image:
        return _header(image, raw)


def decode(data: bytes | memoryview, short_side: int | None = None, max_pixels: int = MAX_PIXELS) -> Array:
    """Return the pixels of an image: uint8, (height, width, 3), RGB, upright. Of an animation the first frame.

    With ``short_side`` it is reduced by a whole number, so that its short side has from ``short_side`` to less than
    twice as many pixels if it has more; of a JPEG less is decoded then. Images of more than ``16 * short_side**2``
    pixels, which are long and narrow then, are reduced further. Transparent pixels are shown on white.
    """
    return read(data, short_side, max_pixels)[1]


def read(data: bytes | memoryview, short_side: int | None = None, max_pixels: int = MAX_PIXELS) -> tuple[Header, Array]:
    """Return what `read_header` and `decode` return, and open the image once."""
    raw = _raw(data)
    with _opened(raw, max_pixels) as image:
        header = _header(image, raw)
        return header, _upright(_pixels(image, raw, short_side), header.orientation)


def _raw(data: bytes | memoryview) -> Raw:
    """The bytes of an image. A JPEG, of which hardly anything else is made, is not copied."""
    if isinstance(data, bytes):
        return data
    view = memoryview(data).cast("B")
    return view if view[:2] == b"\xff\xd8" else bytes(view)


def _stream(raw: Raw) -> Any:
    if isinstance(raw, bytes):
        return io.BytesIO(raw)
    import pyarrow as pa

    return pa.BufferReader(raw)  # BytesIO would copy


@contextmanager
def _opened(raw: Raw, max_pixels: int) -> Iterator[Image]:
    """Open an image. All that goes wrong with it inside becomes a `BadImage`."""
    pil = pillow()
    from PIL import UnidentifiedImageError

    if not len(raw):
        raise BadImage("empty")
    try:
        with settings(max_pixels), pil.open(_stream(raw), formats=FORMATS) as image:
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
    except pil.DecompressionBombError:
        raise BadImage("too many pixels") from None
    except OSError as error:
        raise BadImage("truncated" if "truncated" in str(error) else "damaged") from None
    except EOFError:
        raise BadImage("truncated") from None
    except _SENSELESS:
        raise BadImage("damaged") from None


def _header(image: Image, raw: Raw) -> Header:
    orientation = _orientation(image, raw)
    width, height = image.size
    if orientation in SWAPPED:
        width, height = height, width
    return Header(str(image.format), width, height, image.mode, _frames(image), orientation)


def _frames(image: Image) -> int:
    """The number of frames; 1 if the frames after the first cannot be read."""
    try:
        return max(1, int(getattr(image, "n_frames", 1)))  # Pillow has the attribute for some formats only
    except (OSError, EOFError, *_SENSELESS):
        return 1


def _orientation(image: Image, raw: Raw) -> int:
    """The EXIF orientation to apply; 1 if there is none, or metadata that cannot be read."""
    if image.format == "TIFF":
        return 1
    if image.format == "PNG" and "exif" not in image.info:
        late = _exif_after_pixels(bytes(raw))  # Pillow would decode all pixels to look for it
        if late is not None:
            image.info["exif"] = late
    try:
        found = pillow().Image.getexif(image).get(_ORIENTATION, 1)
    except (OSError, EOFError, *_SENSELESS):
        return 1
    return int(found) if isinstance(found, int) and 1 <= found <= 8 else 1


def _exif_after_pixels(raw: bytes) -> bytes | None:
    """The EXIF chunk of a PNG, wherever it is."""
    if b"eXIf" not in raw:
        return None
    place = 8
    while place + 8 <= len(raw):
        size = int.from_bytes(raw[place : place + 4], "big")
        if raw[place + 4 : place + 8] == b"eXIf":
            return raw[place + 8 : place + 8 + size]
        place += 12 + size
    return None


def _pixels(image: Image, raw: Raw, short_side: int | None) -> Array:
    """The pixels as they are stored: not upright yet."""
    if image.format == "JPEG" and image.info.get("progressive") and bytes(raw).count(b"\xff\xda") > MOST_SCANS:
        raise BadImage("too many scans")
    if short_side is not None and image.format == "JPEG":
        width, height = image.size
        scale = short_side / min(width, height)
        image.draft(None, (max(1, round(width * scale)), max(1, round(height * scale))))
    if image.format == "JPEG" and (fast := jpeg.decoder()) is not None:
        decoded = fast(raw, image.mode, image.size)
        if decoded is not None:
            return _reduced(decoded, short_side)
    image.load()
    return _reduced(np.asarray(_as_rgb(image)), short_side)


def _reduced(pixels: Array, short_side: int | None) -> Array:
    """The pixels of an image that is reduced by a whole number, each the mean of a square."""
    if short_side is None:
        return pixels
    height, width = pixels.shape[:2]
    most = LONGEST * short_side**2
    factor = max(min(height, width) // short_side, math.ceil(math.sqrt(height * width / most)))
    return pixels if factor < 2 else np.asarray(pillow().fromarray(pixels).reduce(factor))


def _as_rgb(image: Image) -> Image:
    """The image in RGB with 8 bits, transparent pixels on white."""
    pil = pillow()
    if image.mode in _WIDE_MODES:
        wide = np.asarray(image).astype(np.int64)
        image = pil.fromarray(np.clip(wide >> 8, 0, 255).astype(np.uint8))
    elif image.mode == "F":
        wide = np.clip(np.nan_to_num(np.asarray(image), posinf=255, neginf=0), 0, 255)
        image = pil.fromarray((wide * 255 if wide.max() <= 1 else wide).astype(np.uint8))
    if image.mode in _TRANSPARENT_MODES or "transparency" in image.info:
        image = image.convert("RGBA")
        white = pil.new("RGBA", image.size, (255, 255, 255, 255))
        image = pil.alpha_composite(white, image)
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
