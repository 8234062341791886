"""Exact deduplication as a stage of a pipeline."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from gristmill.sizes import parse_size
from gristmill.stages.barrier import BarrierContext, BarrierStage, Forecast, InputEstimate
from gristmill.stages.core import ProcessingStage, WorkerMetadata
from gristmill.stages.deduplication.arguments import check_device
from gristmill.stages.deduplication.remove import REMOVED
from gristmill.stages.deduplication.survivors import FIRST, check_policy
from gristmill.stages.registry import builtin
from gristmill.storage import Folder
from gristmill.tasks import DocumentBatch

if TYPE_CHECKING:
    import pyarrow as pa

REASON = "exact duplicate"


@builtin
@dataclass(eq=False, repr=False)
class ExactDeduplication(BarrierStage):
    """Keeps one document of those whose texts are equal, byte for byte.

    Texts are compared by a hash of 128 bits. Of equal ones the first in the order of the source survives, or the one
    with the highest number in ``score_field`` (``survivor="best"``). Each removed document has a record in
    ``duplicates/`` beside the output, with its survivor, and the values of ``id_field`` if that is given.
    ``memory_limit`` is for the work between the two halves of the pipeline; without it the executor's counts. Hashes
    are made on the CPU, which takes less time than sending texts elsewhere; ``device="cuda"`` makes them on a GPU.
    """

    text_field: str = "text"
    survivor: str = FIRST
    score_field: str | None = None
    memory_limit: int | str | None = None
    device: str | None = None
    id_field: str | None = None

    stays = (REMOVED,)
    decides_with = (
        "pyarrow.parquet",
        *(f"gristmill.stages.deduplication.{name}" for name in ("decisions", "link", "match")),
    )

    def __post_init__(self) -> None:
        check_device(self.device)
        check_policy(self.survivor, self.score_field)
        self.memory_limit = None if self.memory_limit is None else parse_size(self.memory_limit)
        self._on_gpu = False
        self.key_columns = [self.text_field, *(name for name in (self.score_field, self.id_field) if name)]

    def preload(self) -> None:
        from gristmill.kernels import signatures

        signatures.preload(["exact"])

    def setup(self, worker_metadata: WorkerMetadata | None = None) -> None:
        from gristmill.kernels import gpu_signatures

        has_gpu = worker_metadata is not None and bool(worker_metadata.gpus)
        usable = has_gpu and gpu_signatures.available()
        if self.device == "cuda" and not usable:
            raise RuntimeError("device='cuda' needs a GPU and CuPy.")
        self._on_gpu = self.device != "cpu" and usable

    def keys(self, batch: DocumentBatch) -> pa.Table:
        import pyarrow as pa

        from gristmill.kernels import gpu_signatures
        from gristmill.kernels.signatures import exact_hashes
        from gristmill.stages.deduplication.parts import common_columns, without_text
        from gristmill.stages.text.filters.columns import only_texts_of
        from gristmill.tasks.arrow import number_array

        columns = common_columns(batch, self.text_field, self.score_field, self.id_field)
        texts = only_texts_of(batch, self.text_field)
        hashes = gpu_signatures.exact_hashes(texts) if self._on_gpu else exact_hashes(texts)
        silent, own = without_text(batch, self.text_field)
        hashes[silent] = own
        return pa.table({**columns, "h0": number_array(hashes[:, 0]), "h1": number_array(hashes[:, 1])})

    def decide(self, context: BarrierContext) -> None:
        from gristmill.stages.deduplication import decisions, link
        from gristmill.stages.deduplication.parts import Parts

        parts = Parts.found(context.folder)
        if not parts.documents:
            decisions.write_counts(context, parts)
            return
        labels = decisions.equal_keys(context, parts)
        sizes = link.ClusterSizes.of(labels)
        decisions.write_clusters(context, parts, labels, self.survivor)
        removed = decisions.write_records(context, parts, self.id_field is not None)
        context.notes.append(decisions.outcome(self.name, parts, sizes, sum(removed.removed.values())))

    def after_barrier(self, folder: Folder, records: Folder) -> ProcessingStage[DocumentBatch, DocumentBatch]:
        from gristmill.stages.deduplication.remove import RemoveDuplicates

        return RemoveDuplicates(self.name, REASON, folder, records)

    def forecast(self, estimate: InputEstimate, memory: int, workers: int, stored: bool) -> Forecast:
        from gristmill.stages.deduplication.cost import Cost

        return Cost(estimate, memory, workers, stored, key_bytes=24).forecast()
