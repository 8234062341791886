"""Semantic deduplication of texts: embed, cluster, remove, from files to files."""

from __future__ import annotations

import os
import posixpath
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gristmill.models.engine import BatchSize
from gristmill.stages.resources import Resources
from gristmill.stages.text.embedders.base import DEFAULT_MODEL, EmbeddingCreatorStage
from gristmill.stages.text.embedders.model import BATCH
from gristmill.stages.text.embedders.tokenizer import TRUNCATE
from gristmill.stages.text.io.formats import FORMATS
from gristmill.storage import Folder
from gristmill.workflows.deduplication import Paths, kind_of_files
from gristmill.workflows.embedding_files import TextEmbeddings
from gristmill.workflows.semantic import SemanticDeduplicationWorkflow
from gristmill.workflows.semantic_result import SemanticDeduplicationResult

if TYPE_CHECKING:
    from gristmill.backends.base import Executor

EPS = 0.01


@dataclass(eq=False, repr=False)
class TextSemanticDeduplicationWorkflow:
    """Finds texts that mean the same in JSONL or Parquet files, and removes them: embeds, clusters, removes.

        TextSemanticDeduplicationWorkflow("data/", "out/", eps=0.1).run()

    Texts are embedded as by `EmbeddingCreatorStage`, with ``model_identifier``, ``embedding_max_chars`` and so on.
    Embeddings are compared as by `SemanticDeduplicationWorkflow`: a document is a duplicate if one that is ranked
    before it in its cluster has a cosine similarity of at least 1 - ``eps``. ``n_clusters=None`` chooses one cluster
    for each 1,000 documents, at most the square root of their number.

    Written to ``output_path``: ``embeddings/`` (in ``cache_path`` if that is given), ``pairwise_results/``, with
    ``eps`` also ``duplicates/``, and with ``perform_removal`` also ``deduplicated/`` (the input without duplicates;
    records without a text are in its ``quarantine/``). ``cache_path`` must be a folder that all workers see,
    and so must the output if it is not given. The files are of ``input_filetype`` (None: the one that is there), those
    written of ``output_filetype`` (None: the same).
    """

    input_path: Paths
    output_path: str | os.PathLike[str]
    cache_path: str | os.PathLike[str] | None = None
    perform_removal: bool = True
    text_field: str = "text"
    embedding_field: str = "embeddings"
    model_identifier: str = DEFAULT_MODEL
    embedding_max_chars: int | None = None
    embedding_max_seq_length: int | None = None
    embedding_pooling: str | None = None
    embedding_dtype: str = "float32"
    long_documents: str = TRUNCATE
    prompt: str | None = None
    prompt_name: str | None = None
    use_sentence_transformer: bool = True
    model_inference_batch_size: BatchSize = BATCH
    autocast: bool = True
    hf_token: str | bool | None = None
    model_cache_dir: str | None = None
    n_clusters: int | None = None
    id_field: str | None = None
    metadata_fields: Sequence[str] | None = None
    distance_metric: str = "cosine"
    which_to_keep: str = "hard"
    score_field: str | None = None
    eps: float | None = EPS
    kmeans_max_iter: int = 300
    kmeans_tol: float = 1e-4
    kmeans_random_state: int = 42
    kmeans_init: str = "k-means++"
    kmeans_fit_data_fraction: float | None = None
    pairwise_batch_size: int = 1024
    input_filetype: str | None = None
    input_blocksize: int | str | None = None
    output_filetype: str | None = None
    memory_limit: int | str | None = None
    device: str | None = None
    kmeans_resources: Resources | None = None
    pairwise_resources: Resources | None = None
    read_kwargs: dict[str, Any] | None = None
    write_kwargs: dict[str, Any] | None = None
    keep_cache: bool = False
    verbose: bool = True

    def __post_init__(self) -> None:
        for name, given in (("input_filetype", self.input_filetype), ("output_filetype", self.output_filetype)):
            if given is not None and given not in FORMATS:
                raise ValueError(f"{name} must be one of {', '.join(map(repr, FORMATS))}, not {given!r}.")
        self._embedder = self._make_embedder()
        self._flow(next(iter(FORMATS)))  # raises if its arguments are wrong

    def run(self, executor: Executor | None = None, *, fresh: bool = False) -> SemanticDeduplicationResult:
        """Run on an executor; None is this machine.

        A run that was stopped resumes: embeddings by blocks, then after the last done step. A finished run changes
        nothing; ``fresh`` removes its files and starts over. Raise `OutputChanged` if the output is of other arguments
        or input.
        """
        from gristmill.workflows.semantic_run import SemanticRun

        flow = self._flow(self.input_filetype or kind_of_files(self.input_path, self.read_kwargs))
        cache = Folder(self.output_path if self.cache_path is None else self.cache_path)
        files = TextEmbeddings(flow, self._embedder, posixpath.join(cache.full_path(""), "embeddings"))
        return SemanticRun(flow, executor, files).run(fresh)

    def _make_embedder(self) -> EmbeddingCreatorStage:
        return EmbeddingCreatorStage(
            model_identifier=self.model_identifier,
            use_sentence_transformer=self.use_sentence_transformer,
            text_field=self.text_field,
            embedding_field=self.embedding_field,
            cache_dir=self.model_cache_dir,
            max_chars=self.embedding_max_chars,
            max_seq_length=self.embedding_max_seq_length,
            embedding_pooling=self.embedding_pooling,
            model_inference_batch_size=self.model_inference_batch_size,
            autocast=self.autocast,
            hf_token=self.hf_token,
            long_documents=self.long_documents,
            dtype=self.embedding_dtype,
            prompt=self.prompt,
            prompt_name=self.prompt_name,
        )

    def _flow(self, kind: str) -> SemanticDeduplicationWorkflow:
        return SemanticDeduplicationWorkflow(
            input_path=self.input_path,
            output_path=self.output_path,
            n_clusters=self.n_clusters,
            cache_path=self.cache_path,
            id_field=self.id_field,
            embedding_field=self.embedding_field,
            metadata_fields=self.metadata_fields,
            input_filetype=kind,
            blocksize=self.input_blocksize,
            max_iter=self.kmeans_max_iter,
            tol=self.kmeans_tol,
            random_state=self.kmeans_random_state,
            init=self.kmeans_init,
            fit_data_fraction=self.kmeans_fit_data_fraction,
            distance_metric=self.distance_metric,
            which_to_keep=self.which_to_keep,
            score_field=self.score_field,
            text_field=self.text_field,
            pairwise_batch_size=self.pairwise_batch_size,
            eps=self.eps,
            perform_removal=self.perform_removal,
            memory_limit=self.memory_limit,
            device=self.device,
            kmeans_resources=self.kmeans_resources,
            pairwise_resources=self.pairwise_resources,
            read_kwargs=self.read_kwargs,
            write_kwargs=self.write_kwargs,
            keep_cache=self.keep_cache,
            verbose=self.verbose,
            output_filetype=self.output_filetype,
        )
