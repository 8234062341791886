"""Copies of pictures as they are found on the web: resized, recompressed, cropped, turned, grey, marked, converted."""

from __future__ import annotations

import io
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from PIL import Image, ImageDraw, ImageFont

ORIGINAL = "original"
RESIZED = (50, 25)
QUALITIES = (90, 60, 30)
CROPPED = (5, 10, 20)
_TURNED = {3: Image.Transpose.ROTATE_180, 6: Image.Transpose.ROTATE_90, 8: Image.Transpose.ROTATE_270}
_ORIENTATION = 0x0112


class Copy(NamedTuple):
    """A copy of a picture."""

    name: str
    """Of the picture."""
    kind: str
    end: str
    data: bytes


def pictures(folder: Path) -> list[Path]:
    """Return the PNG pictures with a caption: a text file of the same name."""
    return [path for path in sorted(folder.rglob("*.png")) if path.with_suffix(".txt").exists()]


def on_white(path: Path) -> Image.Image:
    """Return a picture without transparency: other tools show what is below it."""
    with Image.open(path) as image:
        whole = image.convert("RGBA")
    return Image.alpha_composite(Image.new("RGBA", whole.size, (255, 255, 255, 255)), whole).convert("RGB")


def planted(name: str, image: Image.Image) -> Iterator[Copy]:
    """Yield the picture and its copies. What is random depends on the name."""
    rng = random.Random(name)
    width, height = image.size
    yield Copy(name, ORIGINAL, "png", _encoded(image, "PNG"))
    for share in RESIZED:
        size = (max(1, round(width * share / 100)), max(1, round(height * share / 100)))
        yield Copy(name, f"resized to {share} %", "png", _encoded(image.resize(size, Image.Resampling.LANCZOS), "PNG"))
    for quality in QUALITIES:
        yield Copy(name, f"JPEG {quality}", "jpg", _encoded(image, "JPEG", quality=quality))
    for percent in CROPPED:
        wide, high = (max(1, round(side * (1 - percent / 100))) for side in (width, height))
        x, y = rng.randint(0, width - wide), rng.randint(0, height - high)
        cropped = image.crop((x, y, x + wide, y + high))
        yield Copy(name, f"cropped {percent} %", "png", _encoded(cropped, "PNG"))
    orientation = rng.choice(sorted(_TURNED))
    exif = Image.Exif()
    exif[_ORIENTATION] = orientation
    turned = image.transpose(_TURNED[orientation])
    yield Copy(name, "turned by EXIF", "jpg", _encoded(turned, "JPEG", quality=95, exif=exif))
    yield Copy(name, "turned by EXIF, PNG", "png", _encoded(turned, "PNG", exif=exif))
    yield Copy(name, "grey", "png", _encoded(image.convert("L"), "PNG"))
    yield Copy(name, "watermarked", "png", _encoded(_marked(image), "PNG"))
    yield Copy(name, "JPEG 95", "jpg", _encoded(image, "JPEG", quality=95))
    yield Copy(name, "WebP 80", "webp", _encoded(image, "WEBP", quality=80))
    yield Copy(name, "WebP lossless", "webp", _encoded(image, "WEBP", lossless=True))


def _marked(image: Image.Image) -> Image.Image:
    """The picture with half transparent letters over its lower part."""
    layer = Image.new("RGBA", image.size, (0, 0, 0, 0))
    font = ImageFont.load_default(max(6, image.height // 8))
    place = (image.width * 0.05, image.height * 0.8)
    ImageDraw.Draw(layer).text(place, "(c) example.com", fill=(0, 0, 0, 128), font=font)
    return Image.alpha_composite(image.convert("RGBA"), layer).convert("RGB")


def _encoded(image: Image.Image, kind: str, **options: Any) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()
