"""Pictures made for tests, and copies of them."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
from PIL import Image

TURNED = {
    3: Image.Transpose.ROTATE_180,
    6: Image.Transpose.ROTATE_90,
    8: Image.Transpose.ROTATE_270,
}


def picture(seed: int, width: int = 160, height: int = 120) -> Image.Image:
    """A picture of its own: smooth shapes in colours, with some detail."""
    rng = np.random.default_rng(seed)
    coarse = rng.integers(0, 256, (7, 9, 3), dtype=np.uint8)
    smooth = Image.fromarray(coarse).resize((width, height), Image.Resampling.BICUBIC)
    detail = rng.integers(-12, 13, (height, width, 1))
    return Image.fromarray(np.clip(np.asarray(smooth).astype(int) + detail, 0, 255).astype(np.uint8))


def encoded(image: Image.Image, kind: str = "PNG", **options: Any) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


def turned(image: Image.Image, orientation: int, kind: str = "PNG") -> bytes:
    """The image turned, and the EXIF orientation that turns it back."""
    exif = Image.Exif()
    exif[0x0112] = orientation
    return encoded(image.transpose(TURNED[orientation]), kind, exif=exif)


def scaled(image: Image.Image, share: float) -> Image.Image:
    size = (max(1, round(image.width * share)), max(1, round(image.height * share)))
    return image.resize(size, Image.Resampling.LANCZOS)


def cropped(image: Image.Image, left: float, top: float, share: float) -> Image.Image:
    x, y = round(image.width * left), round(image.height * top)
    return image.crop((x, y, x + round(image.width * share), y + round(image.height * share)))


def blank(value: int = 255, width: int = 64, height: int = 48) -> Image.Image:
    return Image.new("RGB", (width, height), (value, value, value))


def animated(seeds: list[int]) -> bytes:
    first, *others = [picture(seed) for seed in seeds]
    return encoded(first, "WEBP", save_all=True, append_images=others, lossless=True, duration=100)
