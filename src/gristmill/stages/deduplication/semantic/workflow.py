"""Semantic deduplication from files of embeddings to duplicates, and to the files without them."""

from __future__ import annotations

import os
import posixpath
import shutil
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from gristmill.errors import PipelineFailed, PlanError
from gristmill.lazy import np
from gristmill.sizes import parse_size
from gristmill.stages.core import ProcessingStage
from gristmill.stages.deduplication.semantic.arithmetic import DEVICES, has_torch
from gristmill.stages.deduplication.semantic.cluster import (
    AssignClustersStage,
    KMeansStage,
    SortByClusterStage,
    count_clusters,
)
from gristmill.stages.deduplication.semantic.embeddings import SOURCE, StoreEmbeddingsStage
from gristmill.stages.deduplication.semantic.fixed_point import MAX_DIM
from gristmill.stages.deduplication.semantic.identify import IdentifyDuplicatesStage
from gristmill.stages.deduplication.semantic.kmeans import INITS
from gristmill.stages.deduplication.semantic.pairwise_stage import PairwiseStage
from gristmill.stages.deduplication.semantic.parts import cluster_ranges, length_of_first, settled
from gristmill.stages.deduplication.semantic.ranking import POLICIES
from gristmill.stages.deduplication.semantic.removal import RemoveSemanticDuplicates, write_removed
from gristmill.stages.deduplication.semantic.result import SemanticDeduplicationResult
from gristmill.stages.deduplication.semantic.store import Store
from gristmill.stages.deduplication.semantic.tasks import ClusterRange, EmbeddingPart
from gristmill.stages.resources import Resources
from gristmill.stages.text.io.reader import JsonlReader, ParquetReader
from gristmill.stages.text.io.reader.base import FileReader, Paths
from gristmill.stages.text.io.writer import JsonlWriter, ParquetWriter
from gristmill.storage import Folder
from gristmill.tasks import EmptyTask

if TYPE_CHECKING:
    from gristmill.backends.base import Executor
    from gristmill.pipeline.result import RunResult

GPU_SHARE = 0.25
"""Of a GPU, for a worker that compares: some read while others compute."""
OWN = ("kmeans_results", "pairwise_results", "duplicates", "quarantine", "deduplicated")


class SemanticDeduplicationWorkflow:
    """Finds documents that mean the same: k-means over their embeddings, then similarities inside each cluster.

        SemanticDeduplicationWorkflow("embedded/", "out/", n_clusters=1000, eps=0.05, perform_removal=True).run()

    A document is a duplicate if one that is ranked before it in its cluster has a cosine similarity of at least
    1 - ``eps``. ``which_to_keep`` is the ranking: "hard" (the farthest from the centroid first), "easy" (the nearest),
    "random" (by a hash of the id), "first" of the input, "longest" text (``text_field``), or "best" (the highest
    ``score_field``). ``distance_metric`` is that of "hard" and "easy".

    Written to ``output_path``: ``pairwise_results/`` (every document with its most similar one of a higher rank), with
    ``eps`` also ``duplicates/`` (a record for each), with ``perform_removal`` also ``deduplicated/`` (the input
    without them), and ``quarantine/`` (documents without a usable embedding, which are kept). Results depend on the
    input and the arguments above only: not on workers, executors, block sizes or devices.

    ``input_path`` is a file, a folder, a glob or a list. ``id_field=None`` takes ``<file>#<position>`` for an id.
    ``cache_path`` (else the output) must be a folder that all workers see. ``memory_limit`` is for embeddings in
    memory, all processes together: k-means is fitted on a sample if half of it cannot hold all. ``device`` None is a
    GPU if there is one and torch is installed, else the CPUs, for which NumPy is enough.
    """

    def __init__(
        self,
        input_path: Paths,
        output_path: str | os.PathLike[str],
        n_clusters: int,
        cache_path: str | os.PathLike[str] | None = None,
        id_field: str | None = "id",
        embedding_field: str = "embeddings",
        embedding_dim: int | None = None,
        metadata_fields: Sequence[str] | None = None,
        input_filetype: str = "parquet",
        blocksize: int | str | None = None,
        max_iter: int = 300,
        tol: float = 1e-4,
        random_state: int = 42,
        init: str = "k-means++",
        fit_data_fraction: float | None = None,
        distance_metric: str = "cosine",
        which_to_keep: str = "hard",
        score_field: str | None = None,
        text_field: str = "text",
        pairwise_batch_size: int = 1024,
        eps: float | None = None,
        perform_removal: bool = False,
        memory_limit: int | str | None = None,
        device: str | None = None,
        kmeans_resources: Resources | None = None,
        pairwise_resources: Resources | None = None,
        read_kwargs: dict[str, Any] | None = None,
        write_kwargs: dict[str, Any] | None = None,
        keep_cache: bool = False,
        verbose: bool = True,
    ) -> None:
        self.input_path = input_path
        self.output_path = os.fspath(output_path)
        self.n_clusters = n_clusters
        self.id_field = id_field
        self.embedding_field = embedding_field
        self.embedding_dim = embedding_dim
        self.metadata_fields = list(metadata_fields or ())
        self.input_filetype = input_filetype
        self.blocksize = blocksize
        self.max_iter = max_iter
        self.tol = tol
        self.random_state = random_state
        self.init = init
        self.fit_data_fraction = fit_data_fraction
        self.distance_metric = distance_metric
        self.which_to_keep = which_to_keep
        self.score_field = score_field
        self.text_field = text_field
        self.pairwise_batch_size = pairwise_batch_size
        self.eps = eps
        self.perform_removal = perform_removal
        self.memory_limit = None if memory_limit is None else parse_size(memory_limit)
        self.device = device
        self.kmeans_resources = kmeans_resources
        self.pairwise_resources = pairwise_resources
        self.read_kwargs = dict(read_kwargs or {})
        self.write_kwargs = dict(write_kwargs or {})
        self.keep_cache = keep_cache
        self.verbose = verbose
        self.storage_options = dict(self.write_kwargs.get("storage_options") or {})
        self.output = Folder(self.output_path, self.storage_options)
        cache = os.fspath(cache_path) if cache_path is not None else self.output_path
        self.store = Store(posixpath.join(_local(cache), "kmeans_results"))
        for problem in self._problems():
            raise ValueError(f"SemanticDeduplicationWorkflow: {problem}.")

    def _problems(self) -> Iterator[str]:
        choices = {
            "input_filetype": ("parquet", "jsonl"),
            "init": INITS,
            "distance_metric": ("cosine", "l2"),
            "which_to_keep": POLICIES,
            "device": DEVICES,
        }
        for name, known in choices.items():
            if getattr(self, name) not in known:
                words = ", ".join(repr(one) for one in known)
                yield f"{name} must be one of {words}, not {getattr(self, name)!r}"
        for name in ("n_clusters", "max_iter", "pairwise_batch_size"):
            count = getattr(self, name)
            if type(count) is not int or count < 1:
                yield f"{name} must be a whole number above 0, not {count!r}"
        if self.eps is not None and not 0 <= self.eps <= 2:
            yield f"eps must be between 0 and 2, not {self.eps!r}: documents of similarity 1 - eps are duplicates"
        if self.perform_removal and self.eps is None:
            yield "perform_removal needs eps: from which similarity on is a document a duplicate"
        if self.which_to_keep == "best" and self.score_field is None:
            yield "which_to_keep='best' needs score_field: the column whose highest value is kept"
        if self.fit_data_fraction is not None and not 0 < self.fit_data_fraction <= 1:
            yield f"fit_data_fraction must be above 0 and at most 1, not {self.fit_data_fraction!r}"
        if self.embedding_dim is not None and not 1 <= self.embedding_dim <= MAX_DIM:
            yield f"embedding_dim must be between 1 and {MAX_DIM}, not {self.embedding_dim!r}"
        if not set(self.metadata_fields).isdisjoint({"id", SOURCE}):
            yield f"metadata_fields may not hold 'id' and {SOURCE!r}: records have columns of these names"

    def run(self, executor: Executor | None = None) -> SemanticDeduplicationResult:
        """Do all of it on an executor; None is this machine."""
        return _Run(self, executor).all()

    def reader(self) -> FileReader:
        """What reads the input: the same blocks whenever it is called."""
        kind = JsonlReader if self.input_filetype == "jsonl" else ParquetReader
        return kind(self.input_path, blocksize=self.blocksize, read_kwargs=self.read_kwargs, text_field=None)

    def writer(self, path: str) -> JsonlWriter | ParquetWriter:
        kind = JsonlWriter if self.input_filetype == "jsonl" else ParquetWriter
        return kind(path, write_kwargs=self.write_kwargs)

    def place(self, name: str) -> str:
        """The folder of a result."""
        return self.output.full_path(name)


def _local(path: str) -> str:
    folder = Folder(path)
    if not folder.is_local:
        raise ValueError(
            f"SemanticDeduplicationWorkflow: cache_path must be a folder that all workers see as one of their own, "
            f"not {path!r}: give cache_path=... beside an output elsewhere."
        )
    return os.path.abspath(folder.root)


class _Run:
    """One run: its steps, and what they found."""

    def __init__(self, flow: SemanticDeduplicationWorkflow, executor: Executor | None) -> None:
        from gristmill.backends.engine import machine
        from gristmill.backends.local.executor import LocalExecutor

        self.flow = flow
        self.store = flow.store
        self.executor = executor if executor is not None else LocalExecutor()
        config = getattr(self.executor, "config", None)
        cpus: float | None = getattr(config, "cpus", None)
        self.fit_cpus = max(1.0, float(int(cpus or 1)))
        """All of them where it is known how many there are: nothing else runs beside it."""
        limit = flow.memory_limit or machine.memory_bytes() // 2
        self.fit_room = limit // 2
        self.pair_room = limit // 2 // max(1, int(cpus or machine.cpu_count()))
        self.on_gpu = flow.device == "cuda" or (flow.device is None and bool(machine.gpus()) and has_torch())
        self.device = "cuda" if self.on_gpu else "cpu"
        self.seconds: dict[str, float] = {}

    def all(self) -> SemanticDeduplicationResult:
        flow, store = self.flow, self.store
        self._clear()
        with self._timed("read"):
            dim = flow.embedding_dim or length_of_first(flow.reader(), self._stage(1))
            parts, unreadable = self._read(dim)
        bad: Counter[str] = Counter()
        for part in parts:
            bad.update(part.bad)
        rows = sum(part.rows for part in parts)
        fitted: dict[str, Any] = {}
        edges = np.zeros(1, dtype=np.int64)
        found: Counter[str] = Counter()
        kept = None
        if rows:
            with self._timed("kmeans"):
                fitted, clusters = self._fit()
            with self._timed("assign"):
                edges = self._assign(parts, clusters)
            with self._timed("pairwise"):
                found = self._compare(edges)
        if flow.perform_removal:
            with self._timed("removal"):
                kept = self._remove()
        sizes = np.diff(edges)
        result = SemanticDeduplicationResult(
            documents=rows + bad.total() + unreadable,
            embedded=rows,
            quarantined=dict(bad),
            unreadable=unreadable,
            dim=dim,
            clusters=int((sizes > 0).sum()),
            largest_cluster=int(sizes.max(initial=0)),
            fit_rows=fitted.get("fit_rows", 0),
            fit_is_sample=fitted.get("fit_is_sample", False),
            iterations=fitted.get("iterations", 0),
            converged=fitted.get("converged", True),
            duplicates=None if flow.eps is None else found["duplicates"],
            chained=None if flow.eps is None else found["chained"],
            kept=kept,
            device=fitted.get("device", "none"),
            gpu_peak_bytes=max(fitted.get("gpu_peak", 0), found["gpu_peak"]),
            seconds=self.seconds,
            paths=self._paths(bool(bad)),
        )
        if not flow.keep_cache:
            shutil.rmtree(store.path, ignore_errors=True)
        if flow.verbose:
            print(result.summary(), file=sys.stderr, flush=True)
        return result

    @contextmanager
    def _timed(self, name: str) -> Iterator[None]:
        start = time.perf_counter()
        yield
        self.seconds[name] = time.perf_counter() - start

    def _paths(self, bad: bool) -> dict[str, str]:
        names = ["pairwise_results"]
        names += ["duplicates"] if self.flow.eps is not None else []
        names += ["deduplicated"] if self.flow.perform_removal else []
        names += ["quarantine"] if bad else []
        paths = {name: self.flow.place(name) for name in names}
        return paths | ({"kmeans_results": self.store.path} if self.flow.keep_cache else {})

    def _clear(self) -> None:
        """Remove what an earlier run has left, unless that is the input."""
        flow = self.flow
        given = [flow.input_path] if isinstance(flow.input_path, str | os.PathLike) else list(flow.input_path)
        for name in OWN:
            place = flow.output.path(name).rstrip("/") + "/"
            for path in given:
                if (Folder(path, flow.read_kwargs.get("storage_options")).path().rstrip("/") + "/").startswith(place):
                    raise PlanError(f"{path} is to be read, but {place} is written anew: write to another output_path.")
            flow.output.remove(name)
        shutil.rmtree(self.store.path, ignore_errors=True)
        os.makedirs(os.path.join(self.store.path, "parts"))

    def _pipeline(self, name: str, stages: Sequence[ProcessingStage[Any, Any]], tasks: Any = None) -> RunResult:
        from gristmill.pipeline import Pipeline

        pipeline = Pipeline(f"semantic deduplication: {name}", stages=stages)
        result = pipeline.run(self.executor, tasks, keep_outputs=True)
        if not result.ok:  # the executor ignores failures, but what comes next needs all of it
            raise PipelineFailed(result.failure_report(), result)
        return result

    def _stage(self, dim: int) -> StoreEmbeddingsStage:
        flow = self.flow
        return StoreEmbeddingsStage(
            self.store.path,
            flow.place("quarantine"),
            flow.embedding_field,
            dim,
            flow.id_field,
            flow.metadata_fields,
            flow.which_to_keep,
            flow.score_field,
            flow.text_field,
            flow.random_state,
            flow.storage_options,
        )

    def _read(self, dim: int) -> tuple[list[EmbeddingPart], int]:
        result = self._pipeline("read", [self.flow.reader(), self._stage(dim)])
        parts = settled(self.store, [task for task in result if isinstance(task, EmbeddingPart)], dim)
        unreadable = 0 if result.ledger is None else result.ledger.total().errored.total()
        return parts, unreadable

    def _fit(self) -> tuple[dict[str, Any], int]:
        flow = self.flow
        stage = KMeansStage(
            self.store.path,
            flow.n_clusters,
            self.fit_room,
            flow.fit_data_fraction,
            flow.max_iter,
            flow.tol,
            flow.random_state,
            flow.init,
            self.device,
        )
        plain = Resources(cpus=1, gpus=1) if self.on_gpu else Resources(cpus=self.fit_cpus)
        stage = stage.with_(resources=flow.kmeans_resources or plain)
        (task,) = self._pipeline("kmeans", [stage], [EmptyTask()])
        assert isinstance(task, ClusterRange)
        return task.found, task.data[1]

    def _each(self) -> Resources:
        """What a worker needs that compares."""
        share = Resources(cpus=1, gpus=GPU_SHARE) if self.on_gpu else Resources(cpus=1)
        return self.flow.pairwise_resources or share

    def _assign(self, parts: list[EmbeddingPart], clusters: int) -> np.ndarray:
        flow = self.flow
        there = [EmbeddingPart(data=part.data, rows=part.rows) for part in parts]
        assign = AssignClustersStage(self.store.path, flow.distance_metric, self.device)
        self._pipeline("assign", [assign.with_(resources=self._each())], there)
        edges = count_clusters(self.store, clusters)
        self._pipeline("sort", [SortByClusterStage(self.store.path)], there)
        for part in parts:
            for kind in ("points", "labels", "distances", "scores", "starts"):
                os.unlink(self.store.part_file(part.data, kind))
        return edges

    def _compare(self, edges: np.ndarray) -> Counter[str]:
        flow = self.flow
        pairwise = PairwiseStage(
            self.store.path,
            flow.place("pairwise_results"),
            self.pair_room,
            flow.which_to_keep,
            flow.pairwise_batch_size,
            self.device,
            flow.storage_options,
        )
        stages: list[ProcessingStage[Any, Any]] = [pairwise.with_(resources=self._each())]
        if flow.eps is not None:
            places = (flow.place("pairwise_results"), flow.place("duplicates"))
            stages.append(IdentifyDuplicatesStage(self.store.path, *places, flow.eps, flow.storage_options))
        found: Counter[str] = Counter()
        for task in self._pipeline("pairwise", stages, list(cluster_ranges(edges))):
            assert isinstance(task, ClusterRange)
            found["duplicates"] += task.found.get("duplicates", 0)
            found["chained"] += task.found.get("chained", 0)
            found["gpu_peak"] = max(found["gpu_peak"], task.found["gpu_peak"])
        return found

    def _remove(self) -> int:
        import pyarrow.parquet as pq

        folder = Folder(self.flow.place("duplicates"), self.flow.storage_options)

        def pieces() -> Iterator[tuple[list[str], list[float]]]:
            for name in folder.names():
                with folder.fs.open(folder.path(name), "rb") as file:
                    table = pq.ParquetFile(file).read(columns=[SOURCE, "similarity"])
                yield table.column(SOURCE).to_pylist(), table.column("similarity").to_pylist()

        write_removed(self.store, pieces())
        from gristmill.pipeline import Pipeline

        stages: list[ProcessingStage[Any, Any]] = [
            self.flow.reader(),
            RemoveSemanticDuplicates(self.store.path),
            self.flow.writer(self.flow.place("deduplicated")),
        ]
        result = Pipeline("semantic deduplication: removal", stages=stages).run(self.executor, fresh=True)
        assert result.ledger is not None
        return result.ledger.total().kept
