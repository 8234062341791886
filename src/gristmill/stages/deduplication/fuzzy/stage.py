"""Fuzzy deduplication as a stage of a pipeline."""

from __future__ import annotations

from functools import cached_property
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from gristmill.sizes import parse_size
from gristmill.stages.barrier import BarrierContext, BarrierStage, Forecast, Looked
from gristmill.stages.core import ProcessingStage, WorkerMetadata
from gristmill.stages.deduplication.policy import FIRST, check_device, check_policy
from gristmill.stages.deduplication.remove import REMOVED
from gristmill.stages.registry import register
from gristmill.storage import Folder
from gristmill.tasks import DocumentBatch

if TYPE_CHECKING:
    import pyarrow as pa

    from gristmill.kernels.signatures import Sketcher
    from gristmill.stages.deduplication.parts import Parts

REASON = "near duplicate"
CHAR_NGRAMS = 24
MAX_CHAINED_CLUSTER = 16


@register
class FuzzyDeduplication(BarrierStage):
    """Keeps one document of those that are nearly the same.

    Documents are compared by their shingles, runs of ``char_ngrams`` characters, or of ``word_ngrams`` words if that
    is given. Two whose shingles overlap by j (Jaccard's index) meet with probability 1 - (1 - j^r)^b in one of b
    bands (``num_bands``) of r minima (``minhashes_per_band``): with 20 and 13, of those that overlap by 0.8 two of
    three, by 0.9 all but one in two hundred, by 0.6 one in forty. Those that meet are in one cluster, and whoever
    meets one of them. Case, white space, invisible characters (soft hyphens, zero-width characters) and composed or
    decomposed accents do not matter, unless ``normalize`` is False.

    Of a cluster the first document in the order of the source stays, the ``"longest"``, or the ``"best"`` by
    ``score_field``. What is removed is written down in ``duplicates/`` beside the output, with the document that
    stays, the cluster and the similarity: estimated for all, and verified for ``verify_sample`` of them. With
    ``verify=True`` it is verified for all, and nothing is removed whose similarity to the one that stays is below
    ``jaccard_threshold`` (by default the similarity at which the odds of meeting turn, (1/b)^(1/r)): what hangs
    together through others only is taken apart. Without ``verify=True`` the threshold decides only what the summary
    calls chained: which documents meet is up to ``num_bands`` and ``minhashes_per_band``. What documents have in
    ``id_field``, if that is given, is written down beside the places where they stand.

    Clusters of more than ``max_chained_cluster`` documents are split without ``verify``, too, by their keys: a document
    that shares no band with the one that stays, and is estimated to be far less like it than the threshold, stays,
    unless it shares a band with another that stays. None splits none.

    ``bands_per_iteration`` says how many bands are compared at the same time; None: as many as fit ``memory_limit``,
    or the executor's. ``method`` is "fast" (fast similarity sketching) or "classic" (one permutation for each
    minimum). ``seed`` changes which of the pairs around the threshold meet. Sketches are made on a GPU if this machine
    has one that can be used, to the same bits; ``device`` "cpu" or "cuda" says so or otherwise.
    """

    revision = 2

    stays = (REMOVED,)

    decides_with = (
        "pyarrow.parquet",
        *(
            f"gristmill.stages.deduplication.{name}"
            for name in ("decisions", "link", "match", "fuzzy.chains", "fuzzy.verify")
        ),
    )

    def __init__(
        self,
        text_field: str = "text",
        char_ngrams: int = CHAR_NGRAMS,
        num_bands: int = 20,
        minhashes_per_band: int = 13,
        bands_per_iteration: int | None = None,
        use_64_bit_hash: bool = False,
        seed: int = 42,
        word_ngrams: int | None = None,
        method: str = "fast",
        survivor: str = FIRST,
        score_field: str | None = None,
        verify: bool = False,
        verify_sample: int = 1000,
        jaccard_threshold: float | None = None,
        memory_limit: int | str | None = None,
        device: str | None = None,
        normalize: bool = True,
        id_field: str | None = None,
        max_chained_cluster: int | None = MAX_CHAINED_CLUSTER,
    ) -> None:
        check_device(device)
        check_policy(survivor, score_field)
        for name, value in (
            *(("char_ngrams", char_ngrams), ("num_bands", num_bands), ("minhashes_per_band", minhashes_per_band)),
            *(("bands_per_iteration", bands_per_iteration), ("word_ngrams", word_ngrams)),
            ("max_chained_cluster", max_chained_cluster),
        ):
            if value is None and name in ("bands_per_iteration", "word_ngrams", "max_chained_cluster"):
                continue
            if type(value) is not int or value < 1:
                raise ValueError(f"{name} must be a whole number above 0, not {value!r}.")
        if bands_per_iteration is not None and bands_per_iteration > num_bands:
            raise ValueError(f"bands_per_iteration is {bands_per_iteration}, more than the {num_bands} of num_bands.")
        if word_ngrams is not None and char_ngrams != CHAR_NGRAMS:
            raise ValueError("shingles are of characters or of words: give char_ngrams or word_ngrams.")
        if method not in ("fast", "classic"):
            raise ValueError(f"method must be 'fast' or 'classic', not {method!r}.")
        if jaccard_threshold is not None and not 0 < jaccard_threshold <= 1:
            raise ValueError(f"jaccard_threshold must be above 0 and at most 1, not {jaccard_threshold!r}.")
        self.text_field = text_field
        self.char_ngrams = char_ngrams
        self.word_ngrams = word_ngrams
        self.num_bands = num_bands
        self.minhashes_per_band = minhashes_per_band
        self.bands_per_iteration = bands_per_iteration
        self.use_64_bit_hash = use_64_bit_hash
        self.seed = seed
        self.method = method
        self.survivor = survivor
        self.score_field = score_field
        self.verify = verify
        self.verify_sample = verify_sample
        if jaccard_threshold is not None and not verify:
            self.cautions = ["jaccard_threshold decides only what the report calls chained: verify=True removes by it"]
        self.jaccard_threshold = jaccard_threshold or (1 / num_bands) ** (1 / minhashes_per_band)
        self.memory_limit = None if memory_limit is None else parse_size(memory_limit)
        self.device = device
        self.normalize = normalize
        self._on_gpu = False
        if type(verify_sample) is not int or verify_sample < 0:
            raise ValueError(f"verify_sample must be a whole number, 0 for none, not {verify_sample!r}.")
        _ = self.sketcher  # which says what is wrong with its arguments
        self.id_field = id_field
        self.max_chained_cluster = max_chained_cluster
        self.key_columns = [text_field, *(name for name in (score_field, id_field) if name)]

    @property
    def far(self) -> float:
        """The estimated similarity below which that of two documents is, by all odds, below the threshold."""
        return max(0.0, self.jaccard_threshold - 3 * (0.25 / (self.num_bands * self.minhashes_per_band)) ** 0.5)

    @property
    def bands(self) -> list[str]:
        """The columns of keys by which documents meet."""
        return [band_name(n) for n in range(self.num_bands)]

    @property
    def gpu_is_of_use(self) -> bool:
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
        context.notes.insert(0, decisions.told(self.name, parts, sizes, count))
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

    def forecast(self, looked: Looked, memory: int, workers: int, stored: bool) -> Forecast:
        from gristmill.stages.deduplication.cost import Cost

        key_bytes = 8 * self.num_bands + self.num_bands * self.minhashes_per_band + 8
        cost = Cost(
            *(looked, memory, workers, stored, key_bytes),
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
