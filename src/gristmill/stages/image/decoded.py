"""The pixels of a batch's images for models, decoded at the size that they need."""

from __future__ import annotations

from collections.abc import Callable

from gristmill.images.decode import MAX_PIXELS, decode
from gristmill.images.pictures import SHORT_SIDE, Pictures, each_readable
from gristmill.lazy import Array
from gristmill.tasks import DocumentBatch
from gristmill.tasks.image import IMAGE


def each_decoded(
    batch: DocumentBatch,
    make: Callable[[Array], Array],
    side: int | None,
    field: str = IMAGE,
    max_pixels: int = MAX_PIXELS,
) -> tuple[DocumentBatch, list[Array]]:
    """Return the batch without the images that cannot be read, and what ``make`` makes of the pixels of each other one.

    ``side``: the short side that is needed, so that large images are reduced while they are decoded; None: none is. Up
    to 256 pixels, images are decoded once for all stages of a step. Larger ones are dropped from memory one by one.
    """
    if side is not None and side <= SHORT_SIDE:
        batch, pictures = Pictures.of(batch, field, max_pixels=max_pixels)
        return batch, [make(pixels) for pixels in pictures.pixels]
    return each_readable(batch, lambda data: make(decode(data, side, max_pixels)), field)
