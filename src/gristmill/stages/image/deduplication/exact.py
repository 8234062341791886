"""Exact deduplication of images as a stage of a pipeline."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from gristmill.lazy import np
from gristmill.stages.barrier import BarrierContext, Forecast, InputEstimate
from gristmill.stages.deduplication.survivors import BEST, FIRST
from gristmill.stages.image.deduplication.barrier import ImageBarrier, own_hashes
from gristmill.stages.registry import builtin
from gristmill.tasks import DocumentBatch
from gristmill.tasks.image import IMAGE

if TYPE_CHECKING:
    import pyarrow as pa

    from gristmill.stages.deduplication.parts import Parts

BYTES, PIXELS = "bytes", "pixels"


@builtin
@dataclass(eq=False, repr=False)
class ImageExactDeduplication(ImageBarrier):
    """Keeps one image of those that are equal.

    With ``level="bytes"`` the encoded bytes are compared, and nothing is decoded. With "pixels" the decoded pixels are:
    in full size, upright, 8 bits of RGB, transparent pixels on white, the first frame of an animation. So a PNG, its
    lossless WebP and a copy that is turned by EXIF are equal; a JPEG of it is not. Both compare hashes of 128 bits.

    The first image in the order of the source survives, or the one with the highest number in ``score_field``
    (``survivor="best"``). Each removed image has a record in ``duplicates/`` beside the output, with its survivor and
    the values of ``id_field`` if that is given. With "pixels" an image that cannot be read is in quarantine. With
    "bytes" a missing image stays.
    """

    level: str = BYTES
    survivor: str = FIRST
    score_field: str | None = None
    image_field: str = IMAGE
    memory_limit: int | str | None = None
    id_field: str | None = None

    reason = "exact duplicate image"

    def __post_init__(self) -> None:
        if self.level not in (BYTES, PIXELS):
            raise ValueError(f"level must be 'bytes' or 'pixels', not {self.level!r}.")
        self.check(self.survivor, (FIRST, BEST))

    def keys(self, batch: DocumentBatch) -> pa.Table:
        from gristmill.images.decode import decode
        from gristmill.images.errors import BadImage
        from gristmill.images.hashes import bytes_hash, pixels_hash
        from gristmill.images.pictures import encoded
        from gristmill.tasks.arrow import number_array

        hashes = own_hashes(batch)
        sizes = np.zeros(batch.num_items, np.int64)
        bad: dict[int, str] = {}
        for row, data in enumerate(encoded(batch, self.image_field)):
            try:
                if self.level == BYTES and data is not None:
                    hashes[row] = np.frombuffer(bytes_hash(data), np.uint64)
                    sizes[row] = len(data)
                elif self.level == PIXELS:
                    if data is None:
                        raise BadImage("no image")
                    pixels = decode(data)
                    hashes[row] = np.frombuffer(pixels_hash(pixels), np.uint64)
                    sizes[row] = pixels.shape[0] * pixels.shape[1]
            except BadImage as error:
                bad[row] = str(error)
        return self.table(batch, sizes, bad, {name: number_array(hashes[:, n]) for n, name in enumerate(("h0", "h1"))})

    def decide_on(self, context: BarrierContext, parts: Parts) -> None:
        from gristmill.stages.deduplication import decisions, link

        labels = decisions.equal_keys(context, parts)
        sizes = link.ClusterSizes.of(labels)
        decisions.write_clusters(context, parts, labels, self.survivor)
        removed = decisions.write_records(context, parts, self.id_field is not None)
        context.notes.append(decisions.outcome(self.name, parts, sizes, sum(removed.removed.values())))

    def forecast(self, estimate: InputEstimate, memory: int, workers: int, stored: bool) -> Forecast:
        from gristmill.stages.deduplication.cost import Cost

        cost = Cost(estimate, memory, workers, stored, key_bytes=32)
        if self.level == BYTES:
            return replace(cost.forecast(), text_bytes=0)
        return self.forecast_of(cost, "")
