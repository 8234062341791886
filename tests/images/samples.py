"""Small images for tests, made by code."""

from __future__ import annotations

import io
import random
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "TIFF", "BMP")


def encoded(number: int, kind: str = "PNG", width: int = 40, height: int = 30) -> bytes:
    """A gradient with a rectangle: another one for each number."""
    pixels = np.zeros((height, width, 3), dtype=np.uint8)
    pixels[:] = np.linspace(0, 255, width, dtype=np.uint8)[None, :, None]
    pixels[5:15, number % 20 : number % 20 + 10] = [number * 37 % 256, number * 91 % 256, number * 13 % 256]
    made = io.BytesIO()
    Image.fromarray(pixels).save(made, kind)
    return made.getvalue()


def image_table(numbers: range, rng: random.Random) -> pa.Table:
    """Images of all formats, with captions of 1 to 8 words and metadata."""
    return pa.table(
        {
            "image": pa.array([encoded(n, FORMATS[n % len(FORMATS)]) for n in numbers], pa.large_binary()),
            "image_id": [f"set/{n}.{FORMATS[n % len(FORMATS)].lower()}" for n in numbers],
            "caption": [" ".join(["word"] * rng.randint(1, 8)) for _ in numbers],
            "width": [40 for _ in numbers],
            "tags": [["a"] * (n % 3) for n in numbers],
        }
    )


def image_corpus(folder: Path, seed: int = 7, files: int = 3, images: int = 40) -> Path:
    """Parquet files with images, several row groups in each."""
    rng = random.Random(seed)
    folder.mkdir(parents=True)
    for n in range(files):
        table = image_table(range(n * images, (n + 1) * images), rng)
        pq.write_table(table, folder / f"{n}.parquet", row_group_size=10)
    return folder
