"""The formats of encoded images, by their first bytes. Nothing is decoded."""

from __future__ import annotations

from typing import NamedTuple


class ImageFormat(NamedTuple):
    """A format that is read and written."""

    name: str
    """As Pillow names it."""
    extension: str
    """Of files, without a dot."""


_BY_START = (
    (b"\xff\xd8\xff", ImageFormat("JPEG", "jpg")),
    (b"\x89PNG\r\n\x1a\n", ImageFormat("PNG", "png")),
    (b"GIF87a", ImageFormat("GIF", "gif")),
    (b"GIF89a", ImageFormat("GIF", "gif")),
    (b"II*\0", ImageFormat("TIFF", "tif")),
    (b"MM\0*", ImageFormat("TIFF", "tif")),
    (b"BM", ImageFormat("BMP", "bmp")),
    (b"\0\0\0\x0cjP  \r\n\x87\n", ImageFormat("JPEG2000", "jp2")),
    (b"\xff\x4f\xff\x51", ImageFormat("JPEG2000", "j2k")),
    *(
        (f"P{n}".encode() + end, ImageFormat("PPM", kind))
        for n, kind in ((1, "pbm"), (2, "pgm"), (3, "ppm"), (4, "pbm"), (5, "pgm"), (6, "ppm"))
        for end in (b" ", b"\t", b"\n", b"\r")
    ),
)
_WEBP = ImageFormat("WEBP", "webp")
_AVIF = ImageFormat("AVIF", "avif")
HEAD_BYTES = 64
"""So many first bytes tell the format."""


def format_of(data: bytes | memoryview) -> ImageFormat | None:
    """Return the format of an encoded image; None if it is none of those that are read.

    >>> format_of(b"\\x89PNG\\r\\n\\x1a\\n...").extension
    'png'
    """
    head = bytes(data[:HEAD_BYTES])
    if head[:4] == b"RIFF" and head[8:12] == b"WEBP":
        return _WEBP
    if head[4:8] == b"ftyp":
        brands = {head[8:12], *(head[i : i + 4] for i in range(16, min(len(head), head[3]), 4))}
        return _AVIF if brands & {b"avif", b"avis"} else None
    return next((kind for start, kind in _BY_START if head.startswith(start)), None)
