"""Encoded images as people see them: the facts of their headers, and small pictures for pages."""

from __future__ import annotations

import base64
import io
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from gristmill.images.errors import BadImage
from gristmill.images.formats import format_of
from gristmill.lazy import Array
from gristmill.tasks.image import IMAGE

if TYPE_CHECKING:
    from PIL.Image import Image

THUMBNAIL = 96
"""The longer side of a thumbnail, in pixels."""
QUALITY = 60
MOST_THUMBNAIL_BYTES = 6 << 10
_MOST_PIXELS = 1 << 25
"""A larger image has no thumbnail: to decode it takes long, and much memory."""


class ImageFacts(NamedTuple):
    """What is known of an image without its pixels."""

    format: str
    """Empty if it is none that is read."""
    width: int
    height: int
    """Zero if the header cannot be read, or Pillow is not installed."""
    bytes: int

    def words(self, size: str) -> str:
        """Return the facts as text, with the number of bytes as ``size``.

        >>> ImageFacts("JPEG", 640, 480, 5000).words("4.9 kB")
        'JPEG, 640 x 480, 4.9 kB'
        """
        sides = f"{self.width} x {self.height}" if self.width else ""
        return ", ".join(part for part in (self.format or "no known image", sides, size) if part)


def image_of(record: Mapping[str, Any]) -> bytes | None:
    """Return the encoded image of a record; None if it holds none."""
    data = record.get(IMAGE)
    return data if isinstance(data, bytes) else None


def facts(data: bytes) -> ImageFacts:
    """Return what the first bytes of an image tell, as far as they can be read."""
    kind = format_of(data)
    name = kind.name if kind is not None else ""
    try:
        from gristmill.images.decode import read_header

        header = read_header(data)
    except (BadImage, ImportError):
        return ImageFacts(name, 0, 0, len(data))
    return ImageFacts(header.format, header.width, header.height, len(data))


def thumbnail(data: bytes) -> str:
    """Return a small JPEG of an image as a ``data:`` URI; empty if there is none: it is damaged, or very large.

    It is made again from pixels, so nothing else of the image comes to the page.
    """
    try:
        from PIL import Image

        from gristmill.images.decode import decode

        image = Image.fromarray(decode(data, THUMBNAIL, _MOST_PIXELS))
    except (BadImage, ImportError):
        return ""
    return _small_jpeg(image)


def thumbnail_of(pixels: Array) -> str:
    """Return a small JPEG of RGB pixels as a ``data:`` URI; empty if Pillow is not installed."""
    try:
        from PIL import Image
    except ImportError:
        return ""
    return _small_jpeg(Image.fromarray(pixels))


def _small_jpeg(image: Image) -> str:
    image.thumbnail((THUMBNAIL, THUMBNAIL))
    made = io.BytesIO()
    image.save(made, "JPEG", quality=QUALITY)
    if made.tell() > MOST_THUMBNAIL_BYTES:
        return ""
    return "data:image/jpeg;base64," + base64.b64encode(made.getvalue()).decode()
