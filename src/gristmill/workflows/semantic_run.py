"""One run of a semantic deduplication: its steps on an executor, without the steps of earlier runs."""

from __future__ import annotations

import os
import shutil
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq

from gristmill.backends.engine import machine
from gristmill.backends.local.executor import LocalExecutor
from gristmill.errors import InputChanged, PipelineFailed, PlanError
from gristmill.lazy import np
from gristmill.logs import logger
from gristmill.pipeline import Pipeline, RunResult
from gristmill.pipeline.documents import Segment, check_apart, fingerprint_of
from gristmill.sizes import parse_size
from gristmill.stages.core import ProcessingStage
from gristmill.stages.deduplication.semantic.arguments import default_clusters
from gristmill.stages.deduplication.semantic.arithmetic import has_torch
from gristmill.stages.deduplication.semantic.cluster import (
    AssignClustersStage,
    KMeansStage,
    SortByClusterStage,
    count_clusters,
)
from gristmill.stages.deduplication.semantic.embeddings import SOURCE, StoreEmbeddingsStage
from gristmill.stages.deduplication.semantic.identify import IdentifyDuplicatesStage
from gristmill.stages.deduplication.semantic.pairwise_stage import RECORDS_NAME, PairwiseStage
from gristmill.stages.deduplication.semantic.parts import cluster_ranges, length_of_first, settled
from gristmill.stages.deduplication.semantic.removal import RemoveSemanticDuplicates, write_removed
from gristmill.stages.deduplication.semantic.store import EmbeddingStore
from gristmill.stages.deduplication.semantic.tasks import ClusterRange, EmbeddingPart
from gristmill.stages.resources import Resources
from gristmill.stages.text.io.reader.base import FileReader
from gristmill.storage import Folder
from gristmill.tasks import EmptyTask, FileBlock
from gristmill.workflows.embedding_files import EmbeddingFiles
from gristmill.workflows.semantic_result import SemanticDeduplicationResult
from gristmill.workflows.step_log import StepLog

if TYPE_CHECKING:
    from gristmill.backends.base import Executor
    from gristmill.workflows.semantic import SemanticDeduplicationWorkflow

GPU_SHARE = 0.25
"""The share of a GPU for a worker that compares: some workers read while others compute."""
PAIRS = ("pairwise_results", "duplicates")
NAME = "semantic deduplication"
FEW = 10
"""With fewer documents per cluster, a message warns that duplicates may be missed."""


class SemanticRun:
    """Does the steps that are not done yet."""

    def __init__(self, flow: SemanticDeduplicationWorkflow, executor: Executor | None, files: EmbeddingFiles) -> None:
        self.flow = flow
        self.files = files
        self.store = EmbeddingStore(flow.store_path)
        self.executor = executor if executor is not None else LocalExecutor()
        cpus = None if self.executor.on_cluster else self.executor.limits().cpus
        self.fit_cpus = max(1.0, float(int(cpus or 1)))
        """All CPUs if their number is known: nothing else runs at the same time."""
        limit = parse_size(flow.memory_limit) if flow.memory_limit else machine.memory_bytes() // 2
        self.fit_memory = limit // 2
        self.pair_memory = limit // 2 // max(1, int(cpus or machine.cpu_count()))
        self.on_gpu = flow.device == "cuda" or (flow.device is None and bool(machine.gpus()) and has_torch())
        self.device = "cuda" if self.on_gpu else "cpu"
        self.seconds: dict[str, float] = {}

    def run(self, fresh: bool) -> SemanticDeduplicationResult:
        flow = self.flow
        reader = flow.reader(self.files.text_field)
        blocks = reader.source() or []
        cached = Folder(self.store.path)
        for folder in (flow.output, cached):
            check_apart(folder, blocks, flow.input_path)
        made_of = self._made_of(reader, blocks)
        with StepLog(flow.output, flow.own_files) as log:
            if not fresh:
                log.check(made_of)
            if fresh or not self._is_finished(log):
                with StepLog(cached, self.store.own_files) as cache:
                    if fresh:
                        log.clear()
                        cache.clear()
                        log.check(made_of)
                    cache.check(made_of)
                    if cache.is_resumed and not log.is_resumed:  # the output that it was made for has gone
                        cache.clear()
                        cache.check(made_of)
                    self._steps(log, cache, fresh)
                    if changed := reader.changed_inputs():
                        raise InputChanged(f"the input changed during the run: {'; '.join(changed[:5])}")
                    if flow.keep_cache:
                        self.store.drop_unfinished()
                    else:
                        shutil.rmtree(self.store.path, ignore_errors=True)
            return SemanticDeduplicationResult.of(log.done, self.seconds, self._paths(log))

    def _made_of(self, reader: FileReader, blocks: Sequence[FileBlock]) -> dict[str, Any]:
        """Return the fingerprint, and the pipeline that explains documents of the output."""
        flow = self.flow
        stages: list[ProcessingStage[Any, Any]] = [reader]
        if flow.eps is not None:
            stages.append(self._remover())
        described = [{"name": NAME, "arguments": flow.decisive()}, *self.files.described()]
        text = Pipeline(NAME, stages=stages)._as_yaml()
        return {**fingerprint_of(NAME, described, reader, [Segment(blocks)]), "pipeline": text}

    def _is_finished(self, log: StepLog) -> bool:
        return ("removal" if self.flow.perform_removal else "pairwise") in log.done

    def _steps(self, log: StepLog, cache: StepLog, fresh: bool) -> None:
        """Do the missing steps: results up to "pairwise" are in the cache, later ones in the output."""
        flow = self.flow
        is_compared = "pairwise" in log.done
        done = log.done if is_compared else cache.done
        if done:
            self._say(f"{NAME}: {', '.join(done)} were done before, and are not repeated")
        if not is_compared and "read" not in done:
            self.files.check(self._stage(1))
        log.begin()
        cache.begin()
        self.store.drop_unfinished()
        if not is_compared:
            if "read" not in done:
                unreadable = self._made(fresh)
                with self._timed("read"):
                    cache.add("read", self._read(unreadable))
            if done["read"]["rows"]:
                self._check_clusters(done["read"]["rows"], log)
                self._cluster(cache)
            with self._timed("pairwise"):
                found = self._compare() if done["read"]["rows"] else {}
            if flow.eps is not None and flow.output.is_local:
                os.makedirs(flow.place("duplicates"), exist_ok=True)  # an empty folder is a result too
            log.done = dict(done)
            log.add("pairwise", found, *PAIRS)
        if flow.perform_removal and "removal" not in log.done:
            with self._timed("removal"):
                kept = self._remove(fresh=not is_compared)
            log.add("removal", {"kept": kept}, "deduplicated")

    def _clusters(self, rows: int) -> int:
        """Return the number of clusters for so many embeddings."""
        return self.flow.n_clusters or default_clusters(rows)

    def _check_clusters(self, rows: int, log: StepLog) -> None:
        clusters = self._clusters(rows)
        if clusters > rows:
            log.clear()
            shutil.rmtree(self.store.path, ignore_errors=True)
            raise PlanError(
                f"n_clusters is {clusters:,}, but the input has {rows:,} embeddings: documents are compared inside a "
                f"cluster only. Say n_clusters={default_clusters(rows):,} or so: some hundreds to thousands for each."
            )
        if clusters > 1 and rows < FEW * clusters:
            self._say(
                f"{NAME}: {rows:,} embeddings in n_clusters={clusters:,} are {rows / clusters:.1f} for each; documents "
                "are compared inside a cluster only, so duplicates may be missed. Fewer clusters find more."
            )

    def _cluster(self, cache: StepLog) -> None:
        if "kmeans" not in cache.done:
            with self._timed("kmeans"):
                found = self._fit()
            cache.add("kmeans", found)
        parts = [EmbeddingPart(data=part.task_id, rows=part.rows) for part in self.store.parts]
        if "assign" not in cache.done:
            with self._timed("assign"):
                sizes = np.diff(self._assign(parts, cache.done["kmeans"]["centroids"]))
            clusters, wanted = int((sizes > 0).sum()), self._clusters(self.store.rows)
            cache.add("assign", {"clusters": clusters, "largest": int(sizes.max(initial=0))})
            if clusters < wanted:
                fitted_on = cache.done["kmeans"]["fit_rows"]
                self._say(
                    f"{NAME}: {clusters:,} clusters have documents, not n_clusters={wanted:,}: others stay empty "
                    f"where many of the {fitted_on:,} embeddings that k-means was fitted on are equal, or nearly so."
                )
        self.store.drop_unsorted()

    def _say(self, line: str) -> None:
        if self.flow.verbose:
            logger.info(line)

    @contextmanager
    def _timed(self, name: str) -> Iterator[None]:
        start = time.perf_counter()
        yield
        self.seconds[name] = time.perf_counter() - start

    def _paths(self, log: StepLog) -> dict[str, str]:
        names = ["pairwise_results"]
        names += ["duplicates"] if self.flow.eps is not None else []
        names += ["deduplicated"] if self.flow.perform_removal else []
        names += ["quarantine"] if log.done["read"]["bad"] else []
        paths = {name: self.flow.place(name) for name in names}
        paths |= self.files.paths()
        return paths | ({"kmeans_results": self.store.path} if self.flow.keep_cache else {})

    def _pipeline(self, name: str, stages: Sequence[ProcessingStage[Any, Any]], tasks: Any = None) -> RunResult:
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
            flow.metadata_fields or (),
            flow.which_to_keep,
            flow.score_field,
            flow.text_field,
            flow.random_state,
            flow.storage_options,
        )

    def _made(self, fresh: bool) -> int:
        """Make the files of embeddings, if the input has none; return the number of unreadable records."""
        if not self.files.are_made:
            return 0
        with self._timed("embed"):
            return self.files.make(self.executor, self._stage(1), fresh)

    def _read(self, unreadable: int) -> dict[str, Any]:
        dim = self.flow.embedding_dim or length_of_first(self.files.reader(), self._stage(1))
        shutil.rmtree(self.store.file("parts"), ignore_errors=True)
        os.makedirs(self.store.file("parts"))
        result = self._pipeline("read", [self.files.reader(), *self.files.stages(), self._stage(dim)])
        parts = settled(self.store, [task for task in result if isinstance(task, EmbeddingPart)], dim)
        unreadable += 0 if result.ledger is None else result.ledger.total().errored.total()
        bad: Counter[str] = Counter()
        for part in parts:
            bad.update(part.bad)
        return {"dim": dim, "rows": sum(part.rows for part in parts), "bad": dict(bad), "unreadable": unreadable}

    def _fit(self) -> dict[str, Any]:
        flow = self.flow
        stage = KMeansStage(
            self.store.path,
            self._clusters(self.store.rows),
            self.fit_memory,
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
        return {**task.found, "centroids": task.data[1]}

    def _each(self) -> Resources:
        """Return the resources of a worker that compares."""
        share = Resources(cpus=1, gpus=GPU_SHARE) if self.on_gpu else Resources(cpus=1)
        return self.flow.pairwise_resources or share

    def _assign(self, parts: list[EmbeddingPart], clusters: int) -> np.ndarray:
        assign = AssignClustersStage(self.store.path, self.flow.distance_metric, self.device)
        self._pipeline("assign", [assign.with_(resources=self._each())], parts)
        edges = count_clusters(self.store, clusters)
        self._pipeline("sort", [SortByClusterStage(self.store.path)], parts)
        return edges

    def _compare(self) -> dict[str, int]:
        flow = self.flow
        for name in list(flow.own_files()):
            if name.startswith(PAIRS):
                flow.output.remove(name)
        pairwise = PairwiseStage(
            self.store.path,
            flow.place("pairwise_results"),
            self.pair_memory,
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
        for task in self._pipeline("pairwise", stages, list(cluster_ranges(self.store.load("clusters.npy")))):
            assert isinstance(task, ClusterRange)
            found["duplicates"] += task.found.get("duplicates", 0)
            found["chained"] += task.found.get("chained", 0)
            found["gpu_peak"] = max(found["gpu_peak"], task.found["gpu_peak"])
        return dict(found)

    def _remover(self) -> RemoveSemanticDuplicates:
        return RemoveSemanticDuplicates(self.flow.place("duplicates"), self.store.path, self.flow.storage_options)

    def _remove(self, fresh: bool) -> int:
        """Write the documents that are no duplicates; ``fresh``: records are new, so earlier removals do not count."""
        folder = Folder(self.flow.place("duplicates"), self.flow.storage_options)

        def pieces() -> Iterator[tuple[list[str], list[float]]]:
            for name in folder.names():
                if not RECORDS_NAME.fullmatch(name):
                    continue  # a file of the user's
                with folder.open(name) as file:
                    table = pq.ParquetFile(file).read(columns=[SOURCE, "similarity"])
                yield table.column(SOURCE).to_pylist(), table.column("similarity").to_pylist()

        write_removed(self.store, pieces())
        stages: list[ProcessingStage[Any, Any]] = [
            self.flow.reader(self.files.text_field),
            self._remover(),
            self.flow.writer(self.flow.place("deduplicated")),
        ]
        result = Pipeline("semantic deduplication: removal", stages=stages).run(self.executor, fresh=fresh)
        if not result.ok:  # with failures ignored it would count as done, with documents missing
            raise PipelineFailed(result.failure_report(), result)
        assert result.ledger is not None
        return result.ledger.total().kept
