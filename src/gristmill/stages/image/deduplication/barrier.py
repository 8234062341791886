"""What the stages that remove duplicate images share: keys of images, and images that cannot be read."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from gristmill import fast_json
from gristmill.lazy import Array, np
from gristmill.sizes import parse_size
from gristmill.stages.barrier import BarrierContext, BarrierStage, Forecast
from gristmill.stages.core import ProcessingStage
from gristmill.stages.deduplication.remove import REMOVED, RemoveDuplicates
from gristmill.stages.deduplication.survivors import BEST
from gristmill.stages.image.deduplication.removal import UNREADABLE, RemoveDuplicateImages
from gristmill.storage import Folder
from gristmill.tasks import DocumentBatch
from gristmill.tasks.document import ID

if TYPE_CHECKING:
    import pyarrow as pa

    from gristmill.stages.deduplication.cost import Cost
    from gristmill.stages.deduplication.parts import Parts

MOST_PIXELS = 400 << 10
"""Of a reduced image, about."""
MOST_DECODED = 256 << 20
"""Bytes of the decoded images of a batch."""
BAD = "unreadable"
"""The column of keys with the reason why an image cannot be read; null if it can."""


class ImageBarrier(BarrierStage):
    """Removes duplicate images. An image that cannot be read is no duplicate: it is set aside, with its reason."""

    image_field: str
    score_field: str | None
    id_field: str | None
    reason: str
    what: str = "images"
    """What it removes, for messages."""

    stays = (REMOVED, UNREADABLE)
    decides_with = (
        "pyarrow.parquet",
        *(f"gristmill.stages.deduplication.{name}" for name in ("decisions", "link", "match")),
    )

    def check(self, survivor: str, policies: Sequence[str]) -> None:
        """Check and set the arguments that all have."""
        if survivor not in policies:
            raise ValueError(f"survivor must be one of {', '.join(map(repr, policies))}, not {survivor!r}.")
        if (survivor == BEST) != (self.score_field is not None):
            raise ValueError("score_field names the column for survivor='best': give both, or neither.")
        self.memory_limit = None if self.memory_limit is None else parse_size(self.memory_limit)
        self.key_columns = [self.image_field, *(name for name in (self.score_field, self.id_field) if name)]

    def table(self, batch: DocumentBatch, size: Array, bad: Mapping[int, str], keys: Mapping[str, Any]) -> pa.Table:
        """Return the keys of a batch: what all have, and ``keys``. ``size`` is what the largest image has most of."""
        import pyarrow as pa

        from gristmill.stages.deduplication.parts import IDENT, OWN_ID, SCORE, SIZE, own_ids, scores_of
        from gristmill.stages.text.filters.columns import column_of
        from gristmill.tasks.arrow import int_array

        columns: dict[str, Any] = {IDENT: batch.data.column(ID), SIZE: int_array(size)}
        if self.score_field is not None:
            schema = batch.data.schema
            columns[SCORE] = scores_of(schema.field(self.score_field), column_of(batch, self.score_field))
        if self.id_field is not None:
            columns[OWN_ID] = own_ids(batch, self.id_field)
        reasons = pa.array([bad.get(row) for row in range(batch.num_items)], pa.large_string())
        return pa.table({**columns, BAD: reasons, **keys})

    def forecast_of(self, cost: Cost, words: str) -> Forecast:
        """Return the forecast of images. The decoded images of a block are added to the memory of workers."""
        estimate = cost.estimate
        each = max(1, estimate.stored_bytes // max(1, estimate.documents))
        pixels = min(estimate.text_bytes // max(1, estimate.documents), MOST_PIXELS)
        decoded = min(estimate.block_bytes // each * pixels * 3, MOST_DECODED)
        made = cost.forecast()
        return replace(made, text_bytes=0, memory_bytes=made.memory_bytes + cost.workers * decoded, words=words)

    def decide(self, context: BarrierContext) -> None:
        from gristmill.stages.deduplication import decisions
        from gristmill.stages.deduplication.parts import Parts

        parts = Parts.found(context.folder)
        bad = _unreadable(parts)
        context.folder.write(UNREADABLE, fast_json.dumps(bad))
        if count := sum(len(rows) for reasons in bad.values() for rows in reasons.values()):
            context.notes.append(f"{self.name}: {count:,} {self.what} cannot be read, and are in quarantine")
        if parts.documents:
            self.decide_on(context, parts)
        else:
            decisions.write_counts(context, parts)

    @abstractmethod
    def decide_on(self, context: BarrierContext, parts: Parts) -> None:
        """Decide which images are removed."""

    def after_barrier(self, folder: Folder, records: Folder) -> ProcessingStage[DocumentBatch, DocumentBatch]:
        made: RemoveDuplicates = RemoveDuplicateImages(self.name, self.reason, folder, records)
        return made


def own_hashes(batch: DocumentBatch) -> Array:
    """Return a hash of 128 bits of the id of each row, as two numbers: it is equal to no other."""
    from gristmill.images.hashes import bytes_hash

    digests = [bytes_hash(f"no image {ident}".encode()) for ident in batch.data.column(ID).to_pylist()]
    hashes: Array = np.frombuffer(b"".join(digests), np.uint64).reshape(-1, 2).copy()
    return hashes


def _unreadable(parts: Parts) -> dict[str, dict[str, list[int]]]:
    """Return the rows of images that cannot be read, by part and reason."""
    found: dict[str, dict[str, list[int]]] = {}
    for part, name in enumerate(parts.names):
        column = parts.table(part, [BAD]).column(BAD)
        if column.null_count == len(column):
            continue
        reasons = found.setdefault(name, {})
        for row, reason in enumerate(column.to_pylist()):
            if reason is not None:
                reasons.setdefault(reason, []).append(row)
    return found
