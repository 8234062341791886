"""``gristmill init --images``: an example pipeline for images, and a small set of them, drawn by this file."""

from __future__ import annotations

import io
import math
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from gristmill.lazy import Array, np

if TYPE_CHECKING:
    from PIL.Image import Image

EXAMPLE = """\
# A pipeline for images: they flow through the stages from top to bottom.
#
#     gristmill run {file}                  runs it; run it again after a crash to resume
#     gristmill run {file} --dry-run        shows what would run
#     gristmill report output/              shows what was kept and dropped, with pictures
#     gristmill stages                      lists all stages, gristmill stages NAME documents one

name: images
description: keeps images that are large enough and show something, each picture once

stages:
  # Where images come from: a folder, WebDataset shards (.tar), Parquet files or a manifest (.jsonl).
  # The caption of an image is the file beside it that ends in .txt. Relative paths begin at the folder of this file.
  - ImageReader:
      file_paths: input/

  # Each filter is a rule with a threshold. Its score is stored, so that gristmill what-if can try others.
  - ScoreFilter:
      filter_obj:
        - ShortSideFilter: {{min_side: 100}}
        - AspectRatioFilter: {{max_ratio: 3}}
        - BlankImageFilter: {{max_share: 0.95}}
    name: looks

  # The caption is a text like any other.
  - ScoreFilter:
      filter_obj: {{WordCountFilter: {{min_words: 3}}}}
      text_field: caption
    name: captions

  # Copies of a picture: in another format, at another size, compressed more. The largest one stays.
  - ImagePerceptualDeduplication

  # The kept images as WebDataset shards. The dropped ones are in excluded/ beside them, with the rule and the score.
  - ImageWriter:
      path: output/
      images_per_tar: 1000
"""

COLOURS = {
    "red": (214, 48, 49),
    "green": (39, 174, 96),
    "blue": (41, 98, 214),
    "yellow": (241, 196, 15),
    "purple": (142, 68, 173),
    "white": (245, 245, 245),
}
SHAPES = ("circle", "square", "triangle", "cross", "ring", "wave")
FORMATS = (("jpg", "JPEG"), ("png", "PNG"), ("webp", "WEBP"))
WIDTH, HEIGHT = 320, 240
COPIES = 6
"""Pictures that are there again: in another format, smaller, or compressed more."""


class SampleFile(NamedTuple):
    """A file of the set: its name, its bytes, and the caption beside it."""

    name: str
    data: bytes
    caption: str | None


def write_images(folder: Path) -> tuple[int, int]:
    """Write the set of images. Return the number of images and of bytes."""
    count = size = 0
    for file in _files():
        (folder / file.name).write_bytes(file.data)
        if file.caption is not None:
            (folder / file.name).with_suffix(".txt").write_text(file.caption + "\n", encoding="utf-8")
        count += 1
        size += len(file.data)
    return count, size


def _files() -> Iterator[SampleFile]:
    """Yield pictures, copies of some of them, and files that a pipeline should not keep: always the same ones."""
    names = list(COLOURS)
    for number in range(len(SHAPES) * len(names)):
        shape = SHAPES[number % len(SHAPES)]
        colour, ground = names[number // len(SHAPES)], names[(number // len(SHAPES) + 1 + number % 5) % len(names)]
        caption = f"a {colour} {shape} on a {ground} gradient" if colour != ground else f"a {shape} on {ground}"
        picture = _drawn(shape, colour, ground, number)
        end, kind = FORMATS[number % len(FORMATS)]
        yield SampleFile(f"picture-{number:03}.{end}", _encoded(picture, kind, 90), caption)
        if number % len(SHAPES) == 0 and number // len(SHAPES) < COPIES:
            yield _copy(picture, number, caption)
    blank = np.full((HEIGHT, WIDTH, 3), 240, dtype=np.uint8)
    noise = np.random.default_rng(1).integers(0, 256, (HEIGHT, WIDTH, 3), dtype=np.uint8)
    whole = _encoded(_image(noise), "JPEG", 90)
    small = _drawn("circle", "red", "blue", 0).resize((24, 18))
    yield SampleFile(
        "banner.jpg", _encoded(_image(noise[:120].repeat(2, axis=1)), "JPEG", 60), "a banner of coloured noise"
    )
    yield SampleFile("blank.png", _encoded(_image(blank), "PNG", 0), "an empty page without anything")
    yield SampleFile("damaged.jpg", whole[: len(whole) // 3], "a photo whose download was cut")
    yield SampleFile("icon.png", _encoded(small, "PNG", 0), "a small red circle")
    yield SampleFile("noise.jpg", whole, "noise")
    yield SampleFile("page.jpg", b"<!doctype html><title>404</title>", "an error page instead of an image")
    yield SampleFile("uncaptioned.png", _encoded(_drawn("ring", "green", "white", 3), "PNG", 0), None)


def _copy(picture: Image, number: int, caption: str) -> SampleFile:
    """A copy of a picture: in one of the other formats, and every second one at another size."""
    end, kind = FORMATS[(number // len(SHAPES) + 1) % len(FORMATS)]
    if number // len(SHAPES) % 2:
        picture = picture.resize((WIDTH * 3 // 4, HEIGHT * 3 // 4))
    return SampleFile(f"picture-{number:03}_copy.{end}", _encoded(picture, kind, 70), caption)


def _encoded(picture: Image, kind: str, quality: int) -> bytes:
    made = io.BytesIO()
    picture.save(made, kind, **({"quality": quality} if kind != "PNG" else {}))
    return made.getvalue()


def _image(pixels: Array) -> Image:
    from PIL import Image

    return Image.fromarray(pixels)


def _drawn(shape: str, colour: str, ground: str, number: int) -> Image:
    """A shape on a gradient, with stripes whose direction differs from picture to picture."""
    y, x = np.mgrid[0:HEIGHT, 0:WIDTH]
    angle = number * 0.7
    along = x * math.cos(angle) + y * math.sin(angle)
    light = 0.35 + 0.65 * (along - along.min()) / (along.max() - along.min())
    light = light * (0.9 + 0.1 * np.sin(along / (6 + number % 7)))
    pixels = light[:, :, None] * np.array(COLOURS[ground], dtype=np.float64)
    centre_x, centre_y = WIDTH * (0.3 + 0.1 * (number % 5)), HEIGHT * (0.35 + 0.1 * (number % 4))
    inside = _inside(shape, x - centre_x, y - centre_y, 40.0 + 6 * (number % 4))
    pixels[inside] = COLOURS[colour]
    return _image(pixels.clip(0, 255).astype(np.uint8))


def _inside(shape: str, x: Array, y: Array, size: float) -> Array:
    """Which pixels a shape covers; ``x`` and ``y`` are counted from its centre."""
    far = np.hypot(x, y)
    square: Array = (abs(x) < size) & (abs(y) < size)
    match shape:
        case "circle":
            inside: Array = far < size
        case "triangle":
            inside = (y < size) & (y > 2 * abs(x) - size)
        case "cross":
            inside = square & ((abs(x) < size / 3) | (abs(y) < size / 3))
        case "ring":
            inside = (far < size) & (far > size * 0.6)
        case "wave":
            inside = abs(y - size / 2 * np.sin(x / size * 4)) < size / 4
        case _:
            inside = square
    return inside
