"""Semantic deduplication as a stage of a pipeline."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from gristmill.lazy import np
from gristmill.sizes import parse_size
from gristmill.stages.barrier import BarrierContext, BarrierStage
from gristmill.stages.core import ProcessingStage
from gristmill.stages.deduplication.remove import REMOVED
from gristmill.stages.deduplication.semantic.arguments import problems
from gristmill.stages.deduplication.semantic.removal import REASON
from gristmill.stages.registry import builtin
from gristmill.storage import Folder
from gristmill.tasks import DocumentBatch

if TYPE_CHECKING:
    import pyarrow as pa

POINT, DIM, BAD = "point", "dim", "unusable"
"""Columns of keys: the embedding on its grid as bytes, its length (0 for none), and why it cannot be used."""


@builtin
@dataclass(eq=False, repr=False)
class SemanticDeduplication(BarrierStage):
    """Keeps one document of those whose embeddings are nearly the same. It comes after an embedder, or a reader of
    documents that have embeddings.

        stages:
          - JsonlReader: {file_paths: data/}
          - EmbeddingCreatorStage: {}
          - SemanticDeduplication: {eps: 0.05}
          - JsonlWriter: {path: out/}

    K-means divides the embeddings into ``n_clusters`` clusters (None: one for each 1,000 documents, at most the square
    root of their number). A document is a duplicate if one that is ranked before it in its cluster has a cosine
    similarity of at least 1 - ``eps``. ``which_to_keep`` is the ranking: "hard" (the farthest from the centroid first),
    "easy" (the nearest), "random" (by a hash of the id), "first" of the input, "longest" text (``text_field``), or
    "best" (the highest ``score_field``). ``distance_metric`` is that of "hard" and "easy".

    Each removed document has a record in ``duplicates/`` beside the output: the document that stays, the most similar
    one, the similarity and the cluster. Documents without a usable embedding are kept and counted. Embeddings may have
    any length; those of another length than ``embedding_dim`` (default: the most frequent one) are not usable.
    ``drop_embeddings`` removes the column of embeddings from the output.

    Results do not depend on workers, executor or block sizes; on ``memory_limit`` only if k-means is fitted on a
    sample, because half of it does not hold all embeddings. Embeddings are sorted by cluster in the output, or in
    ``cache_path``, which all workers must see as a folder. If the output is not such a folder and no ``cache_path`` is
    given, the driver does this work in a temporary folder.
    """

    embedding_field: str = "embeddings"
    eps: float = 0.01
    n_clusters: int | None = None
    which_to_keep: str = "hard"
    distance_metric: str = "cosine"
    text_field: str = "text"
    score_field: str | None = None
    id_field: str | None = None
    embedding_dim: int | None = None
    max_iter: int = 300
    tol: float = 1e-4
    random_state: int = 42
    init: str = "k-means++"
    fit_data_fraction: float | None = None
    pairwise_batch_size: int = 1024
    memory_limit: int | str | None = None
    cache_path: str | os.PathLike[str] | None = None
    drop_embeddings: bool = False

    stays = (REMOVED,)
    indifferent = ("cache_path", "pairwise_batch_size")
    decides_with = (
        "pyarrow.parquet",
        *(f"gristmill.stages.deduplication.{name}" for name in ("decisions", "semantic.decide")),
    )

    def __post_init__(self) -> None:
        values: Mapping[str, Any] = {field.name: getattr(self, field.name) for field in fields(self)}
        for problem in problems(values):
            raise ValueError(f"SemanticDeduplication: {problem}.")
        if self.eps is None:
            raise ValueError("SemanticDeduplication needs eps: from which similarity on is a document a duplicate.")
        if self.cache_path is not None and not Folder(self.cache_path).is_local:
            raise ValueError(
                "SemanticDeduplication: cache_path must be a folder that all workers see as one of their own, not "
                f"{os.fspath(self.cache_path)!r}."
            )
        self.memory_limit = None if self.memory_limit is None else parse_size(self.memory_limit)
        self.ranked_by = {"longest": self.text_field, "best": self.score_field}.get(self.which_to_keep)
        self.key_columns = [self.embedding_field, *(name for name in (self.ranked_by, self.id_field) if name)]

    def keys(self, batch: DocumentBatch) -> pa.Table:
        import pyarrow as pa

        from gristmill.stages.deduplication.parts import IDENT, OWN_ID, SCORE, SIZE, own_ids
        from gristmill.stages.deduplication.semantic.columns import points_of
        from gristmill.tasks.arrow import int_array, number_array
        from gristmill.tasks.document import ID

        table = batch.data
        found = points_of(table.schema.field(self.embedding_field), table.column(self.embedding_field))
        columns: dict[str, Any] = {IDENT: table.column(ID), SIZE: int_array(np.zeros(batch.num_items))}
        if self.id_field is not None:
            columns[OWN_ID] = own_ids(batch, self.id_field)
        columns[SCORE] = number_array(self._scores(batch, columns.get(OWN_ID, columns[IDENT])))
        columns |= {POINT: found.points, DIM: int_array(found.lengths), BAD: pa.array(found.bad, pa.large_string())}
        return pa.table(columns)

    def _scores(self, batch: DocumentBatch, ids: Any) -> Any:
        """Return the scores that documents are ranked by, the highest first; zeros if the rank is not by a score."""
        from gristmill.stages.deduplication.parts import scores_of
        from gristmill.stages.deduplication.semantic.embeddings import hashes, lengths_of_texts
        from gristmill.stages.text.filters.columns import column_of

        if self.which_to_keep == "random":
            return hashes(ids.to_pylist(), self.random_state)
        if self.ranked_by is None:
            return np.zeros(batch.num_items)
        column = column_of(batch, self.ranked_by)
        if self.which_to_keep == "longest":
            return lengths_of_texts(column)
        return scores_of(batch.data.schema.field(self.ranked_by), column)

    def decide(self, context: BarrierContext) -> None:
        from gristmill.stages.deduplication.semantic.decide import decide

        decide(self, context)

    def after_barrier(self, folder: Folder, records: Folder) -> ProcessingStage[DocumentBatch, DocumentBatch]:
        from gristmill.stages.deduplication.remove import RemoveDuplicates

        dropped = [self.embedding_field] if self.drop_embeddings else []
        return RemoveDuplicates(self.name, REASON, folder, records, dropped)
