"""Perceptual deduplication of images as a stage of a pipeline."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from gristmill.lazy import Array, np
from gristmill.stages.barrier import BarrierContext, Forecast, InputEstimate
from gristmill.stages.deduplication.survivors import BEST, FIRST
from gristmill.stages.image.deduplication.barrier import ImageBarrier
from gristmill.stages.registry import builtin
from gristmill.tasks import DocumentBatch
from gristmill.tasks.image import IMAGE

if TYPE_CHECKING:
    import pyarrow as pa

    from gristmill.images.pictures import Pictures
    from gristmill.stages.deduplication.parts import Parts

LARGEST = "largest"
HASHES, THUMBNAIL, BLANK = "hashes", "thumbnail", "blank"
"""Columns of keys: the hashes of the windows of a picture, its thumbnail, and the hash of its pixels if it is blank."""
MOST_DISTANCE = 15


@dataclass(frozen=True)
class Looks:
    """The pictures of those documents of a batch that can be read."""

    pictures: Sequence[Array]
    rows: list[int]
    """The row of each picture in the batch."""
    sizes: Sequence[int]
    """The pixels of each, of the image or clip itself."""
    bad: Mapping[int, str]
    """The reasons of the rows that cannot be read."""
    equal_only_to: Callable[[int], bytes]
    """Returns 16 bytes of the picture of a number, which are the same for equal pictures without contrast."""


class NearDuplicates(ImageBarrier):
    """Removes documents whose pictures are nearly equal. Subclasses make the pictures."""

    max_distance: int
    min_similarity: float
    verify: bool
    crops: bool
    survivor: str

    decides_with = (*ImageBarrier.decides_with, "gristmill.stages.image.deduplication.near")

    @abstractmethod
    def looks(self, batch: DocumentBatch) -> Looks:
        """Return the pictures of a batch, which stays as it is."""

    def check_near(self) -> None:
        """Check and set the arguments."""
        self.check(self.survivor, (LARGEST, FIRST, BEST))
        if type(self.max_distance) is not int or not 0 <= self.max_distance <= MOST_DISTANCE:
            raise ValueError(
                f"max_distance must be a whole number from 0 to {MOST_DISTANCE}, not {self.max_distance!r}."
            )
        if isinstance(self.min_similarity, bool) or not 0 < self.min_similarity <= 1:
            raise ValueError(f"min_similarity must be above 0 and at most 1, not {self.min_similarity!r}.")

    @property
    def least(self) -> float:
        """The least similarity of duplicates."""
        return self.min_similarity if self.verify else -1.0

    @property
    def windows(self) -> list[tuple[int, int, int]]:
        from gristmill.images.hashes import windows

        return windows(self.crops)

    def preload(self) -> None:
        from gristmill.kernels import thumbnails

        thumbnails.preload()

    def keys(self, batch: DocumentBatch) -> pa.Table:
        import pyarrow as pa

        from gristmill.images.hashes import NO_HASH, THUMBNAIL_BYTES, perceptual_hashes

        looks = self.looks(batch)
        count, width, rows = batch.num_items, len(self.windows), looks.rows
        hashes = np.full((count, width), NO_HASH, np.uint64)
        thumbnails = np.zeros((count, THUMBNAIL_BYTES), np.uint8)
        sizes = np.zeros(count, np.int64)
        blank: list[bytes | None] = [None] * count
        if len(rows):
            found = perceptual_hashes(looks.pictures, self.crops)
            hashes[rows], thumbnails[rows] = found.hashes, found.thumbnails
            sizes[rows] = looks.sizes
            for n in np.flatnonzero(found.blank).tolist():
                blank[rows[n]] = looks.equal_only_to(n)
        keys = {HASHES: _binary(hashes), THUMBNAIL: _binary(thumbnails), BLANK: pa.array(blank, pa.binary())}
        return self.table(batch, sizes, dict(looks.bad), keys)

    def decide_on(self, context: BarrierContext, parts: Parts) -> None:
        from gristmill.stages.image.deduplication.near import decide

        decide(self, context, parts)

    def forecast(self, estimate: InputEstimate, memory: int, workers: int, stored: bool) -> Forecast:
        from gristmill.images.hashes import THUMBNAIL_BYTES
        from gristmill.stages.deduplication.cost import Cost
        from gristmill.stages.image.deduplication.near import BYTES_EACH

        key_bytes = 8 * len(self.windows) + THUMBNAIL_BYTES + 16
        cost = Cost(estimate, memory, workers, stored, key_bytes=key_bytes, match_bytes=BYTES_EACH)
        return self.forecast_of(cost, f", {estimate.text_bytes / 1e6:,.0f} million pixels")


@builtin
@dataclass(eq=False, repr=False)
class ImagePerceptualDeduplication(NearDuplicates):
    """Keeps one image of those that show nearly the same picture: resized, recompressed, converted, grey, cropped.

    Images are taken in the order of ``survivor``: the "largest" first (most pixels), the "first" of the source, or
    the "best" by ``score_field``. Each is compared with those that stay before it. It is removed if one of them has a
    hash that differs in at most ``max_distance`` of 63 bits (0 to 15), and a similarity of at least ``min_similarity``:
    the correlation of their thumbnails, 0 if both have colours and these differ. The survivor is the first such image.
    So each removed image was compared with the one that stays for it, and there are no chains. ``verify=False`` removes
    by the hash alone.

    With ``crops`` a picture is also compared with 38 windows of the other one, with sides of 95, 90 and 80 %, whose
    edges are then moved to where the pictures agree best. Above some hundred thousand images this takes long; without
    it deciding takes less than a fiftieth of the time.

    A picture with too little contrast for a hash, such as a blank page, is a duplicate only of a picture of the same
    size with equal pixels. An image that cannot be read is in quarantine.

    Each removed image has a record in ``duplicates/`` beside the output: its survivor, the distance, the similarity,
    and the values of ``id_field`` if that is given.
    """

    max_distance: int = 12
    min_similarity: float = 0.97
    verify: bool = True
    crops: bool = True
    survivor: str = LARGEST
    score_field: str | None = None
    image_field: str = IMAGE
    memory_limit: int | str | None = None
    id_field: str | None = None

    reason = "near duplicate image"

    def __post_init__(self) -> None:
        self.check_near()

    def looks(self, batch: DocumentBatch) -> Looks:
        pictures, rows, bad = _pictures(batch, self.image_field)
        sizes = [header.width * header.height for header in pictures.headers]
        return Looks(pictures.pixels if rows else [], rows, sizes, bad, partial(_equal_only_to, pictures))


def _pictures(batch: DocumentBatch, field: str) -> tuple[Pictures, list[int], dict[int, str]]:
    """Return the pictures of a batch, their rows, and the reasons of the other rows. The batch stays as it is."""
    from gristmill.images.pictures import Pictures
    from gristmill.tasks.document import ID

    copy = batch._with_data(batch.data)
    copy.cache.update(batch.cache)
    kept, pictures = Pictures.of(copy, field)
    _, rows = kept.selection()
    good = list(range(batch.num_items)) if rows is None else rows.tolist()
    if len(good) == batch.num_items:
        return pictures, good, {}
    account = kept.take_account()
    reasons = {f"{bad.file}#{bad.position}": bad.reason for bad in (account.bad if account else ())}
    idents = batch.data.column(ID).to_pylist()
    return pictures, good, {row: reasons[idents[row]] for row in sorted(set(range(batch.num_items)) - set(good))}


def _equal_only_to(pictures: Pictures, number: int) -> bytes:
    """Return 16 bytes that are the same for pictures of one size with equal pixels."""
    from gristmill.images.hashes import bytes_hash, pixels_hash

    header = pictures.headers[number]
    return bytes_hash(f"{header.width} {header.height} ".encode() + pixels_hash(pictures.pixels[number]))


def _binary(rows: Array) -> pa.Array:
    """Return an array of numbers as a column: the bytes of each row."""
    import pyarrow as pa

    data = np.ascontiguousarray(rows)
    kind = pa.binary(data.shape[1] * data.itemsize)
    return pa.FixedSizeBinaryArray.from_buffers(kind, len(data), [None, pa.py_buffer(data)])


def keys_of(parts: Parts, documents: Array, names: Sequence[str] = ()) -> tuple[Array, Array, pa.Table]:
    """Return the hashes and thumbnails of documents, in their order, and other columns of keys."""
    table = parts.take(documents, [HASHES, THUMBNAIL, *names])
    return _rows(table, HASHES).view(np.uint64), _rows(table, THUMBNAIL), table


def _rows(table: pa.Table, name: str) -> Array:
    from gristmill.tasks.arrow import one_array

    array = one_array(table.column(name))
    width = array.type.byte_width
    flat = np.frombuffer(array.buffers()[1], np.uint8, count=len(array) * width, offset=array.offset * width)
    return flat.reshape(len(array), width)
