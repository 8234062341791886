"""The pictures of a batch, each decoded once for all that look at it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gristmill.images.decode import MAX_PIXELS, Header, decode, read_header
from gristmill.images.errors import BadImage
from gristmill.lazy import Array, np
from gristmill.tasks import BadRecord, DocumentBatch
from gristmill.tasks.document import ID
from gristmill.tasks.image import IMAGE

SHORT_SIDE = 256
"""What filters and hashes look at: a JPEG decoded at the smallest scale whose short side is at least this."""


class Pictures:
    """Headers and reduced pixels of the images of a batch, in their order. All of them can be read.

        batch, pictures = Pictures.of(batch)

    It is kept in the cache of the batch, so the stages of one step share it.
    """

    def __init__(self, headers: Sequence[Header], pixels: Sequence[Array] | None = None) -> None:
        self.headers = list(headers)
        self._pixels = None if pixels is None else list(pixels)

    @classmethod
    def of(
        cls, batch: DocumentBatch, field: str = IMAGE, pixels: bool = True, max_pixels: int = MAX_PIXELS
    ) -> tuple[DocumentBatch, Pictures]:
        """Return the batch without the images that cannot be read, which are reported as bad, and its pictures.

        ``pixels=False`` reads the headers only.
        """
        key = ("pictures", field)
        found: Pictures | None = batch.cache.get(key)
        if found is not None and (found._pixels is not None or not pixels):
            return batch, found
        headers: list[Header] = []
        decoded: list[Array] = []
        reasons: dict[int, str] = {}
        for row, data in enumerate(encoded(batch, field)):
            try:
                if data is None:
                    raise BadImage("no image")
                header = read_header(data, max_pixels)
                if pixels:
                    decoded.append(decode(data, SHORT_SIDE, max_pixels))
                headers.append(header)
            except BadImage as error:
                reasons[row] = str(error)
        if reasons:
            batch = without_bad(batch, reasons)
        made = cls(headers, decoded if pixels else None)
        batch.cache[key] = made
        return batch, made

    def __len__(self) -> int:
        return len(self.headers)

    def select(self, mask: Array) -> Pictures:
        """Return the pictures for which ``mask`` is true."""
        rows = np.flatnonzero(mask).tolist()
        pixels = None if self._pixels is None else [self._pixels[row] for row in rows]
        return Pictures([self.headers[row] for row in rows], pixels)

    @property
    def pixels(self) -> list[Array]:
        """RGB of each picture, (height, width, 3), reduced to a short side of 256 to 511 where the format allows it."""
        assert self._pixels is not None, "Pictures.of(batch, pixels=False) decodes nothing"
        return self._pixels


def encoded(batch: DocumentBatch, field: str = IMAGE) -> list[memoryview | None]:
    """The encoded bytes of each image, without a copy; None where there is no image."""
    from gristmill.tasks.arrow import one_array

    column: Any = one_array(batch.data.column(field))
    return [memoryview(value.as_buffer()) if value.is_valid else None for value in column]


def without_bad(batch: DocumentBatch, reasons: dict[int, str]) -> DocumentBatch:
    """Return the batch without some images. They are reported as records that could not be read, with their reasons."""
    mask = np.ones(batch.num_items, dtype=bool)
    mask[list(reasons)] = False
    idents = batch.data.column(ID).to_pylist() if batch.has_ids else [""] * batch.num_items
    kept = batch.keep(mask)
    kept.account.dropped.pop()  # they are bad, not dropped
    for row, reason in sorted(reasons.items()):
        file, _, position = str(idents[row]).rpartition("#")
        kept.account.bad.append(BadRecord(file, int(position) if position.isdigit() else 0, reason))
    return kept
