"""What a reader of images was asked for, and what its input is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gristmill.errors import PlanError
from gristmill.images.decode import MAX_PIXELS
from gristmill.secrets import without_query
from gristmill.stages.text.io.formats import JSONL, PARQUET
from gristmill.stages.text.io.listing import File

FILES, SHARDS, TABLES, MANIFESTS = "files", "shards", "parquet", "manifest"

IMAGE_ENDINGS = (
    *("jpg", "jpeg", "jpe", "jfif", "png", "apng", "webp", "avif", "gif", "tif", "tiff", "bmp", "dib"),
    *("ppm", "pgm", "pbm", "pnm", "jp2", "j2k", "jpx", "jpf"),
)
"""The ends of the names of images, in lower case. What an image is, is decided by its content."""
CAPTION_ENDINGS = ("txt", "caption")
METADATA_ENDING = "json"
TEXT_ENDINGS = ("cls", "cls2", "class", "index", "id", "url", "transcript")
"""Members of shards that become columns of text."""
SHARD_ENDINGS = (".tar", ".tar.gz", ".tgz", ".tar.zst", ".tar.bz2", ".tar.xz")

EXTENSIONS = {
    FILES: tuple(f".{end}" for end in IMAGE_ENDINGS),
    SHARDS: SHARD_ENDINGS,
    TABLES: tuple(PARQUET.extensions),
    MANIFESTS: tuple(JSONL.extensions),
}
"""By kind of input, the ends of the names of its files."""
BESIDE = tuple(f".{end}" for end in (*CAPTION_ENDINGS, METADATA_ENDING))
"""The ends of the names of files beside an image that are about it."""
WORDS = {FILES: "image files", SHARDS: "tar shards", TABLES: "Parquet files", MANIFESTS: "JSONL manifests"}

MOST_BYTES = 512 << 20
"""An image with more encoded bytes is a bad record, and is not held in memory."""
MOST_TEXT_BYTES = 16 << 20
"""The same for captions and metadata of one image."""
MOST_IMAGES = 512
"""Images of a batch, at most: however small they are, their pixels are not."""


@dataclass(frozen=True)
class ImageOptions:
    """The arguments of a reader that concern single images."""

    image_field: str | None = None
    path_field: str | None = None
    caption_field: str | None = None
    first_line: bool = False
    fields: Sequence[str] | None = None
    max_pixels: int = MAX_PIXELS


def kind_of(path: str) -> str | None:
    """The kind of input that a file is, by its name; None if it is none."""
    name = without_query(path).lower()
    return next((kind for kind, ends in EXTENSIONS.items() if name.endswith(ends)), None)


def one_kind(files: Sequence[File], reader: str) -> str:
    """The kind of all files. Raise `PlanError` if there are several, so that no image is read twice or left out."""
    counts: dict[str, int] = {}
    for file in files:
        if (kind := kind_of(file.path)) is not None:
            counts[kind] = counts.get(kind, 0) + 1
    if not counts:
        raise PlanError(f"{reader!r}: the input holds no image, shard, Parquet file or manifest, only captions.")
    if len(counts) > 1:
        there = " and ".join(f"{count:,} {WORDS[kind]}" for kind, count in counts.items())
        choices = " or ".join(f"kind={kind!r}" for kind in counts)
        raise PlanError(
            f"{reader!r}: the input holds {there}: it is not clear what is to be read.\n"
            f"    name the files, or set {choices}."
        )
    return next(iter(counts))
