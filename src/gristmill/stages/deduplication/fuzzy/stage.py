"""Fuzzy deduplication as a stage of a pipeline."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from gristmill.sizes import parse_size
from gristmill.stages.barrier import BarrierContext, BarrierStage, Forecast, InputEstimate
from gristmill.stages.core import ProcessingStage, WorkerMetadata
from gristmill.stages.deduplication.arguments import check_count, check_device
from gristmill.stages.deduplication.remove import REMOVED
from gristmill.stages.deduplication.survivors import FIRST, check_policy
from gristmill.stages.registry import builtin
from gristmill.storage import Folder
from gristmill.tasks import DocumentBatch

if TYPE_CHECKING:
    import pyarrow as pa

    from gristmill.kernels.signatures import Sketcher
    from gristmill.stages.deduplication.parts import Parts

REASON = "near duplicate"
CHAR_NGRAMS = 24
MAX_CHAINED_CLUSTER = 16


@builtin
@dataclass(eq=False, repr=False)
class FuzzyDeduplication(BarrierStage):
    """Keeps one document of those that are nearly the same.

    Documents are compared by their shingles: runs of ``char_ngrams`` characters, or of ``word_ngrams`` words. Two
    documents whose shingles overlap by j (Jaccard's index) meet with probability 1 - (1 - j^r)^b in one of b bands
    (``num_bands``) of r minima (``minhashes_per_band``). With 20 and 13, two of three documents meet that overlap by
    0.8, all but one in two hundred by 0.9, one in forty by 0.6. Documents that meet, directly or through others, are a
    cluster. Unless ``normalize`` is False, case, white space, invisible characters (soft hyphens, zero-width
    characters) and the encoding of accents do not matter.

    Of a cluster the first document in the order of the source survives, the ``"longest"``, or the ``"best"`` by
    ``score_field``. Each removed document has a record in ``duplicates/`` beside the output: the survivor, the
    cluster, the similarity (estimated for all, verified for ``verify_sample`` of them), and the values of ``id_field``
    if that is given.

    ``verify=True`` verifies all similarities and removes no document that is less like its survivor than
    ``jaccard_threshold`` (default (1/b)^(1/r), where the odds of meeting turn); documents linked only transitively
    are split off. Without it the threshold only decides which documents the summary calls chained. Clusters of more
    than ``max_chained_cluster`` documents (None: no limit) are split by their keys even then: a document stays that
    shares no band with a survivor and is estimated to be far less like it than the threshold.

    ``bands_per_iteration`` bands are compared at the same time (None: as many as ``memory_limit`` or the executor's
    allows). ``method`` is "fast" (fast similarity sketching) or "classic" (one permutation for each minimum). ``seed``
    changes which pairs around the threshold meet. Sketches are made on a GPU if this machine has a usable one, to the
    same bits; ``device`` "cpu" or "cuda" chooses.
    """

    text_field: str = "text"
    char_ngrams: int = CHAR_NGRAMS
    num_bands: int = 20
    minhashes_per_band: int = 13
    bands_per_iteration: int | None = None
    use_64_bit_hash: bool = False
    seed: int = 42
    word_ngrams: int | None = None
    method: str = "fast"
    survivor: str = FIRST
    score_field: str | None = None
    verify: bool = False
    verify_sample: int = 1000
    jaccard_threshold: float | None = None
    memory_limit: int | str | None = None
    device: str | None = None
    normalize: bool = True
    id_field: str | None = None
    max_chained_cluster: int | None = MAX_CHAINED_CLUSTER

    revision = 2
    stays = (REMOVED,)
    decides_with = (
        "pyarrow.parquet",
        *(
            f"gristmill.stages.deduplication.{name}"
            for name in ("decisions", "link", "match", "fuzzy.chains", "fuzzy.verify")
        ),
    )

    def __post_init__(self) -> None:
        check_device(self.device)
        check_policy(self.survivor, self.score_field)
        for name in ("char_ngrams", "num_bands", "minhashes_per_band"):
            check_count(name, getattr(self, name))
        for name in ("bands_per_iteration", "word_ngrams", "max_chained_cluster"):
            if getattr(self, name) is not None:
                check_count(name, getattr(self, name))
        if (self.bands_per_iteration or 0) > self.num_bands:
            raise ValueError(
                f"bands_per_iteration is {self.bands_per_iteration}, more than the {self.num_bands} of num_bands."
            )
        if self.word_ngrams is not None and self.char_ngrams != CHAR_NGRAMS:
            raise ValueError("shingles are of characters or of words: give char_ngrams or word_ngrams.")
        if self.method not in ("fast", "classic"):
            raise ValueError(f"method must be 'fast' or 'classic', not {self.method!r}.")
        if self.jaccard_threshold is not None and not 0 < self.jaccard_threshold <= 1:
            raise ValueError(f"jaccard_threshold must be above 0 and at most 1, not {self.jaccard_threshold!r}.")
        if type(self.verify_sample) is not int or self.verify_sample < 0:
            raise ValueError(f"verify_sample must be a whole number, 0 for none, not {self.verify_sample!r}.")
        if self.jaccard_threshold is not None and not self.verify:
            self.cautions = ["jaccard_threshold decides only what the report calls chained: verify=True removes by it"]
        self.threshold: float = self.jaccard_threshold or (1 / self.num_bands) ** (1 / self.minhashes_per_band)
        self.memory_limit = None if self.memory_limit is None else parse_size(self.memory_limit)
        self._on_gpu = False
        _ = self.sketcher  # raises if its arguments are wrong
        self.key_columns = [self.text_field, *(name for name in (self.score_field, self.id_field) if name)]

    @property
    def far(self) -> float:
        """The estimated similarity below which the true one is almost certainly below the threshold."""
        return max(0.0, self.threshold - 3 * (0.25 / (self.num_bands * self.minhashes_per_band)) ** 0.5)

    @property
    def bands(self) -> list[str]:
        """The columns of keys that link documents."""
        return [band_name(n) for n in range(self.num_bands)]

    @property
    def gpu_is_useful(self) -> bool:
        from gristmill.kernels import gpu_signatures

        return find_spec("cupy") is not None and gpu_signatures.supports(self.sketcher)

    @cached_property
    def sketcher(self) -> Sketcher:
        from gristmill.kernels.signatures import Sketcher

        return Sketcher(
            ngrams=self.word_ngrams or self.char_ngrams,
            unit="word" if self.word_ngrams else "char",
            num_bands=self.num_bands,
            minhashes_per_band=self.minhashes_per_band,
            seed=self.seed,
            method=self.method,
            use_64_bit_hash=self.use_64_bit_hash,
        )

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "sketcher"}

    def preload(self) -> None:
        from gristmill.kernels import folding, signatures

        signatures.preload([self.method])
        if self.normalize:
            folding.preload()

    def setup(self, worker_metadata: WorkerMetadata | None = None) -> None:
        from gristmill.kernels import gpu_signatures

        has_gpu = worker_metadata is not None and bool(worker_metadata.gpus)
        usable = has_gpu and gpu_signatures.available() and gpu_signatures.supports(self.sketcher)
        if self.device == "cuda" and not usable:
            raise RuntimeError("device='cuda' needs a GPU, CuPy, and method='fast' with char_ngrams.")
        self._on_gpu = self.device != "cpu" and usable

    def keys(self, batch: DocumentBatch) -> pa.Table:
        import pyarrow as pa

        from gristmill.stages.deduplication.parts import common_columns, without_text
        from gristmill.stages.deduplication.records import SIGNATURE
        from gristmill.stages.text.filters.columns import only_texts_of
        from gristmill.tasks.arrow import number_array

        columns = common_columns(batch, self.text_field, self.score_field, self.id_field)
        texts = only_texts_of(batch, self.text_field)
        if self.normalize:
            from gristmill.kernels.folding import folded

            texts = folded(texts)
        if self._on_gpu:
            from gristmill.kernels import gpu_signatures

            sketch = gpu_signatures.sketch(self.sketcher, texts)
        else:
            sketch = self.sketcher.sketch(texts)
        width = self.num_bands * self.minhashes_per_band
        small = pa.FixedSizeBinaryArray.from_buffers(
            pa.binary(width), len(sketch.small), [None, pa.py_buffer(sketch.small.tobytes())]
        )
        silent, own = without_text(batch, self.text_field)
        sketch.bands[:, silent] = own[:, 0]
        bands = {band_name(n): number_array(sketch.bands[n]) for n in range(self.num_bands)}
        return pa.table({**columns, **bands, SIGNATURE: small})

    def decide(self, context: BarrierContext) -> None:
        from gristmill.stages.deduplication import decisions, link, match
        from gristmill.stages.deduplication.fuzzy.chains import split_chains
        from gristmill.stages.deduplication.fuzzy.verify import split, verified_sample
        from gristmill.stages.deduplication.parts import Parts

        parts = Parts.found(context.folder)
        if not parts.documents:
            decisions.write_counts(context, parts)
            return
        labels = self._labels(context, parts)
        sizes = link.ClusterSizes.of(labels, self.max_chained_cluster)
        stays = decisions.write_clusters(context, parts, labels, self.survivor)
        if sizes.clusters and self.verify:
            context.notes += split(context, parts, self, labels, stays)
        elif sizes.clusters:
            if len(sizes.large):
                context.notes += split_chains(context, parts, self, labels, stays, sizes)
                stays = match.read_array(context.folder, link.STAYS)
            if self.verify_sample:
                context.notes += verified_sample(context, parts, self, stays)
        removed = decisions.write_records(context, parts, self.id_field is not None, self.bands, self.far)
        count = sum(removed.removed.values())
        context.notes.insert(0, decisions.outcome(self.name, parts, sizes, count))
        for number, why in (
            (removed.chained, "are chained: linked to the document that stays only through others, and less than"),
            (removed.met, "share a band with the document that stays, but are less than"),
        ):
            if number and not self.verify:
                context.notes.append(
                    f"{self.name}: {number:,} of the {count:,} removed documents {why} {self.far:.2f} like it "
                    "(estimated); verify=True keeps them"
                )

    def _labels(self, context: BarrierContext, parts: Parts) -> Any:
        import numpy as np

        from gristmill.stages.deduplication import link, match
        from gristmill.stages.deduplication.cost import bands_at_once

        at_once = self.bands_per_iteration or bands_at_once(parts.documents, self.num_bands, context.memory)
        workers = min(context.workers, at_once)
        stage = match.Match(parts).with_(num_workers=workers)
        parent = np.arange(parts.documents)
        for begin in range(0, self.num_bands, at_once):
            bands = range(begin, min(begin + at_once, self.num_bands))
            memory = context.memory // (2 * workers)
            by_band = [match.tasks_for(band_name(n), [band_name(n)], parts.documents, memory) for n in bands]
            tasks = [task for some in by_band for task in some]
            left = [task for task in tasks if not context.folder.exists(task.data)]
            context.run("match", stage, left, parts.documents * 8 * len(bands))
            link.unite(parent, context.folder, [task.data for task in tasks])
        return link.clusters_of(parent)

    def after_barrier(self, folder: Folder, records: Folder) -> ProcessingStage[DocumentBatch, DocumentBatch]:
        from gristmill.stages.deduplication.remove import RemoveDuplicates

        return RemoveDuplicates(self.name, REASON, folder, records)

    def forecast(self, estimate: InputEstimate, memory: int, workers: int, stored: bool) -> Forecast:
        from gristmill.stages.deduplication.cost import Cost

        key_bytes = 8 * self.num_bands + self.num_bands * self.minhashes_per_band + 8
        cost = Cost(
            *(estimate, memory, workers, stored, key_bytes),
            reading_times=6,
            match_bytes=30,
            verify_bytes=120 << 20,
            bands=self.num_bands,
            per_iteration=self.bands_per_iteration,
            verify=self.verify,
        )
        return cost.forecast()


def band_name(number: int) -> str:
    return f"band{number:03d}"
