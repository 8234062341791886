"""What stages share that score images by a model, and drop those whose score is on the wrong side of a threshold."""

from __future__ import annotations

import copy
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, Self

from gristmill.lazy import Array, np
from gristmill.stages.core import ProcessingStage
from gristmill.stages.image.embedders.made_by import check_before, check_column
from gristmill.stages.protocols import Linked, Scoring, Stages
from gristmill.stages.text.filters.columns import column_of, numbers, set_column
from gristmill.stages.text.filters.document_filter import AtLeast, AtMost, DocumentFilter
from gristmill.stages.text.filters.score_filter import mask_of, reasons_of
from gristmill.tasks import DocumentBatch, Scored
from gristmill.tasks.document import ID


class _Threshold(DocumentFilter):
    """A rule of one threshold. The scores are the stage's."""

    def __init__(self, name: str, missing: str = "") -> None:
        self.name = name
        self.missing = missing
        """Why an image without a score is dropped."""

    def reasons(self, scores: Array) -> Sequence[str]:
        return [self.missing if self.missing and np.isnan(score) else self.name for score in scores]


class ScoreAtLeast(_Threshold, AtLeast, builtin=True):
    """Keeps scores from a threshold on."""

    thresholds = {"score_threshold": "least"}
    rule_text = "a score of at least {0.least:g}"

    def __init__(self, name: str, least: float, missing: str = "") -> None:
        super().__init__(name, missing)
        self.least = least


class ScoreBelow(_Threshold, AtMost, builtin=True):
    """Keeps scores below a threshold."""

    thresholds = {"score_threshold": "most"}
    rule_text = "a score below {0.most:g}"
    exclusive = True

    def __init__(self, name: str, most: float, missing: str = "") -> None:
        super().__init__(name, missing)
        self.most = most


class ScoredStage(ProcessingStage[DocumentBatch, DocumentBatch], Scoring, builtin=True):
    """Scores images, stores the scores in a column, and drops images by them. Subclasses compute the scores."""

    accounts_for_documents = True
    row_wise = True
    rule: DocumentFilter
    score_field: str | None

    @abstractmethod
    def scores(self, task: DocumentBatch) -> tuple[DocumentBatch, Array]:
        """Return the batch, without images that cannot be read, and a score (float32) for each; NaN for none."""

    def outputs(self) -> tuple[list[str], list[str]]:
        return ["data"], [self.score_field] if self.score_field else []

    def made_of(self) -> Sequence[object]:
        return [self.rule]

    def process(self, task: DocumentBatch) -> DocumentBatch:
        from gristmill.tasks.arrow import number_array

        task, scores = self.scores(task)
        if self.score_field:
            there = ~np.isnan(scores)
            set_column(task, self.score_field, number_array(scores, None if there.all() else there))
        mask = mask_of(self.rule, scores)
        gone = scores[~mask]
        ids = task.data.column(ID) if task.has_ids else None
        kept = task.keep(mask, reasons_of(self.rule, gone, False), [_or_none(one) for one in numbers(gone)])
        kept.account.scored.append(Scored(ids, [(None, scores)], np.where(mask, -1, 0).astype(np.int16)))
        return kept

    def scored_rules(self) -> Sequence[tuple[DocumentFilter, bool]]:
        return [(self.rule, False)]

    def with_scored_rules(self, rules: Sequence[DocumentFilter]) -> Self:
        clone = copy.copy(self)
        (clone.rule,) = rules
        return clone

    def after_scored_rule(self, number: int) -> Stages:
        return []


class EmbeddingScoredStage(ScoredStage, Linked):
    """Scores images by their embeddings, and refuses those of another model than its own."""

    embedding_field: str

    @abstractmethod
    def wanted_model(self) -> str:
        """The model whose embeddings it reads: a name such as "ViT-L/14", or that of a checkpoint."""

    @abstractmethod
    def scores_of(self, embeddings: Array) -> Array:
        """A score for each of these embeddings."""

    def inputs(self) -> tuple[list[str], list[str]]:
        return ["data"], [self.embedding_field]

    def linked(self, before: Stages, after: Stages) -> Self:
        check_before(self.name, self.embedding_field, self.wanted_model(), before)
        return self

    def scores(self, task: DocumentBatch) -> tuple[DocumentBatch, Array]:
        rows, there = embeddings_of(task, self.embedding_field)
        check_column(self.name, task.data.schema.field(self.embedding_field), self.wanted_model())
        scores = np.full(task.num_items, np.nan, dtype=np.float32)
        if len(rows):
            scores[there] = self.scores_of(rows)
        return task, scores


def embeddings_of(task: DocumentBatch, field: str) -> tuple[Array, Array]:
    """The embeddings in a column that are not null, as rows, and which documents have one."""
    import pyarrow as pa

    from gristmill.tasks.arrow import mask_of as booleans_of
    from gristmill.tasks.arrow import numbers_of, one_array

    column: Any = one_array(column_of(task, field))
    kind = column.type
    is_list = pa.types.is_fixed_size_list(kind) or pa.types.is_list(kind) or pa.types.is_large_list(kind)
    if not is_list or not pa.types.is_floating(kind.value_type):
        raise TypeError(f"column {field!r} holds {kind}, not embeddings: set embedding_field to their column.")
    there = booleans_of(column.is_valid()) if column.null_count else np.ones(len(column), dtype=bool)
    column = column.drop_null() if column.null_count else column
    if not len(column):
        return np.zeros((0, 0), np.float32), there
    flat = numbers_of(column.flatten())
    if len(flat) % len(column):
        raise TypeError(f"column {field!r} holds embeddings of different lengths.")
    return flat.reshape(len(column), -1), there


def _or_none(score: float | None) -> float | None:
    return None if score is None or np.isnan(score) else score
