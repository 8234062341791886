"""Perceptual deduplication of clips as a stage of a pipeline."""

from __future__ import annotations

from dataclasses import dataclass, replace

from gristmill.lazy import Array
from gristmill.stages.barrier import Forecast, InputEstimate
from gristmill.stages.image.deduplication.perceptual import LARGEST, Looks, NearDuplicates
from gristmill.stages.registry import builtin
from gristmill.tasks import DocumentBatch
from gristmill.tasks.video import CLIP

__all__ = ["ClipPerceptualDeduplication"]


@builtin
@dataclass(eq=False, repr=False)
class ClipPerceptualDeduplication(NearDuplicates):
    """Keeps one clip of those that show nearly the same: encoded again, resized, at another rate, with bars, grey.

    Sixteen frames of each clip become one picture: their mean, and how the brightness changes from each quarter of the
    clip to the others. Dark bars are cut off before. These pictures are compared as `ImagePerceptualDeduplication` does
    with images: a clip is removed if the hash of its picture differs in at most ``max_distance`` of 63 bits from that
    of a clip that stays before it, and the similarity is at least ``min_similarity``. Clips are taken in the order of
    ``survivor``: the "largest" first (most pixels of a frame), the "first" of the source, or the "best" by
    ``score_field``. ``verify=False`` removes by the hash alone.

    Two clips of one scene in which something else moves are no duplicates. Two clips of a still picture are, also if
    one is longer. Copies that begin or end elsewhere are found if about 5 % of the length differs.

    ``clip_field`` is the column of encoded clips. A clip without contrast, such as a black one, is a duplicate only of
    one with an equal picture. A clip that cannot be decoded is in quarantine. Each removed clip has a record in
    ``duplicates/`` beside the output: its survivor, the distance, the similarity, and the values of ``id_field``.
    """

    max_distance: int = 12
    min_similarity: float = 0.9
    verify: bool = True
    survivor: str = LARGEST
    score_field: str | None = None
    clip_field: str = CLIP
    memory_limit: int | str | None = None
    id_field: str | None = None

    reason = "near duplicate clip"
    what = "clips"
    crops = False

    def __post_init__(self) -> None:
        self.image_field = self.clip_field
        self.check_near()

    def looks(self, batch: DocumentBatch) -> Looks:
        from gristmill.images.hashes import pixels_hash
        from gristmill.stages.video.clips import places_of
        from gristmill.stages.video.deduplication.picture import FRAMES, picture_of
        from gristmill.videos.errors import BadVideo

        pictures: list[Array] = []
        rows: list[int] = []
        sizes: list[int] = []
        bad: dict[int, str] = {}
        for row, place in enumerate(places_of(batch, self.clip_field)):
            try:
                if place is None:
                    raise BadVideo("no clip")
                info = place.info()
                pictures.append(picture_of(place.frames(FRAMES, info=info)))
            except BadVideo as error:
                bad[row] = error.reason
                continue
            rows.append(row)
            sizes.append(info.width * info.height)
        return Looks(pictures, rows, sizes, bad, lambda number: pixels_hash(pictures[number]))

    def forecast(self, estimate: InputEstimate, memory: int, workers: int, stored: bool) -> Forecast:
        from gristmill.images.hashes import THUMBNAIL_BYTES
        from gristmill.stages.deduplication.cost import Cost
        from gristmill.stages.image.deduplication.near import BYTES_EACH

        key_bytes = 8 * len(self.windows) + THUMBNAIL_BYTES + 16
        cost = Cost(estimate, memory, workers, stored, key_bytes=key_bytes, match_bytes=BYTES_EACH)
        return replace(cost.forecast(), text_bytes=0)
