"""Images for tests: made here, in every format and mode that is read."""

from __future__ import annotations

import functools
import io
from typing import Any

import numpy as np
from PIL import Image

COLOURS = np.array([[(200, 30, 40), (20, 180, 60)], [(30, 60, 220), (240, 230, 60)]], dtype=np.uint8)
"""Top left, top right, bottom left, bottom right: no two corners alike, so every orientation looks different."""


def picture(width: int = 96, height: int = 64) -> Image.Image:
    """Four corners with different colours."""
    blocks = np.repeat(np.repeat(COLOURS, (height + 1) // 2, axis=0), (width + 1) // 2, axis=1)
    return Image.fromarray(blocks[:height, :width])


def busy(width: int = 300, height: int = 260, seed: int = 0) -> Image.Image:
    """A picture with structure in all sizes."""
    rng = np.random.default_rng(seed)
    coarse = rng.integers(0, 256, (max(2, height // 20), max(2, width // 20), 3), dtype=np.uint8)
    pixels = np.asarray(Image.fromarray(coarse).resize((width, height), Image.Resampling.BICUBIC)).astype(np.int16)
    return Image.fromarray((pixels + rng.integers(-20, 20, pixels.shape)).clip(0, 255).astype(np.uint8))


def encoded(image: Image.Image, kind: str, **options: Any) -> bytes:
    made = io.BytesIO()
    image.save(made, kind, **options)
    return made.getvalue()


def turned(orientation: int) -> Image.Exif:
    exif = Image.Exif()
    exif[0x0112] = orientation
    return exif


def grey16(width: int = 96, height: int = 64) -> Image.Image:
    """From black to white in 16 bits, left to right."""
    return Image.fromarray(np.tile(np.linspace(0, 65535, width).astype(np.uint16), (height, 1)))


@functools.cache
def samples(simple: bool = False) -> dict[str, bytes]:
    """A picture, `busy` or ``simple``, in each format and mode, by a name for it."""
    one = picture() if simple else busy()
    several = {"save_all": True, "append_images": [one.rotate(90), one.rotate(180)]}
    alpha = one.convert("RGBA")
    return {
        "jpeg": encoded(one, "JPEG", quality=90),
        "jpeg progressive": encoded(one, "JPEG", progressive=True),
        "jpeg exif": encoded(one, "JPEG", exif=turned(6)),
        "jpeg grey": encoded(one.convert("L"), "JPEG"),
        "jpeg cmyk": encoded(one.convert("CMYK"), "JPEG", quality=90),
        "jpeg rgb": encoded(one, "JPEG", keep_rgb=True),
        "jpeg restart": encoded(one, "JPEG", restart_marker_rows=1),
        "png": encoded(one, "PNG"),
        "png exif": encoded(one, "PNG", exif=turned(3)),
        "png grey": encoded(one.convert("L"), "PNG"),
        "png 1 bit": encoded(one.convert("1"), "PNG"),
        "png 16 bit": encoded(grey16(), "PNG"),
        "png palette": encoded(one.quantize(32), "PNG"),
        "png alpha": encoded(alpha, "PNG"),
        "png grey alpha": encoded(alpha.convert("LA"), "PNG"),
        "webp": encoded(one, "WEBP", quality=90),
        "webp lossless": encoded(alpha, "WEBP", lossless=True),
        "webp animated": encoded(one, "WEBP", **several),
        "avif": encoded(one, "AVIF"),
        "avif animated": encoded(one, "AVIF", **several),
        "gif": encoded(one, "GIF"),
        "gif animated": encoded(one, "GIF", **several),
        "tiff": encoded(one, "TIFF"),
        "tiff lzw": encoded(one, "TIFF", compression="tiff_lzw"),
        "tiff deflate": encoded(one, "TIFF", compression="tiff_adobe_deflate", exif=turned(8)),
        "tiff jpeg": encoded(one, "TIFF", compression="jpeg"),
        "tiff 16 bit": encoded(grey16(), "TIFF"),
        "tiff float": encoded(Image.fromarray(np.asarray(one.convert("L")).astype(np.float32) / 255), "TIFF"),
        "tiff cmyk": encoded(one.convert("CMYK"), "TIFF"),
        "tiff pages": encoded(one, "TIFF", **several),
        "bmp": encoded(one, "BMP"),
        "ppm": encoded(one, "PPM"),
        "jpeg 2000": encoded(one, "JPEG2000"),
    }
