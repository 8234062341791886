"""The stages that run filters: `ScoreFilter`, `Score` and `Filter`."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any, Self

from gristmill.kernels import features
from gristmill.kernels.texts import Texts
from gristmill.lazy import Array, np
from gristmill.stages.core import ProcessingStage
from gristmill.stages.protocols import Scoring
from gristmill.stages.registry import builtin
from gristmill.stages.text.filters.adapters import Filters, as_filters
from gristmill.stages.text.filters.columns import column_scores, numbers, texts_of, with_column
from gristmill.stages.text.filters.document_filter import DocumentFilter
from gristmill.tasks import DocumentBatch, Scored
from gristmill.tasks.document import ID


class _FilterStage(ProcessingStage[DocumentBatch, DocumentBatch]):
    accounts_for_documents = True
    row_wise = True
    takes_paths = True
    needs_all_fields = True
    filters: list[DocumentFilter]
    text_fields: list[str]
    """The field that each filter reads: of texts, or of scores."""
    score_fields: Sequence[str | None] = ()

    def inputs(self) -> tuple[list[str], list[str]]:
        return ["data"], list(dict.fromkeys(self.text_fields))

    def outputs(self) -> tuple[list[str], list[str]]:
        return ["data"], [name for name in self.score_fields if name]

    def made_of(self) -> Sequence[object]:
        return [part for one in self.filters for part in (one, *one.made_of())]

    def preload(self) -> None:
        # All kernels first and together, so that only one message about compiling them is logged.
        features.preload({group for one in self.filters for group in one.needs})
        for one in self.filters:
            one.preload()

    def setup(self, worker_metadata: Any = None) -> None:
        for one in self.filters:
            one.setup()


class _DroppingStage(_FilterStage, Scoring):
    invert: list[bool]
    invert_all: bool = False

    def scored_rules(self) -> Sequence[tuple[DocumentFilter, bool]]:
        return list(zip(self.filters, self.invert, strict=True))

    def with_scored_rules(self, rules: Sequence[DocumentFilter]) -> Self:
        clone = copy.copy(self)
        clone.filters = list(rules)
        return clone

    def after_scored_rule(self, number: int) -> list[Self]:
        first = number + 1
        if self.invert_all or first >= len(self.filters):
            return []
        clone = copy.copy(self)
        clone.filters, clone.text_fields = self.filters[first:], self.text_fields[first:]
        clone.invert, clone.score_fields = self.invert[first:], list(self.score_fields)[first:]
        return [clone]


@builtin
class ScoreFilter(_DroppingStage):
    """Scores documents by one or several filters in order, and drops the documents that a filter does not keep.

        ScoreFilter([WordCountFilter(50), MeanWordLengthFilter()], keep_scores=True)

    Each filter gets the documents that earlier ones kept. ``text_field`` is one for all or one for each filter; it may
    be a path into objects, such as ``meta.src.text``. ``score_field`` names the column for the scores (a list of names
    for several filters, None for none); ``keep_scores`` stores all scores under ``<filter>_score``. Scores of filters
    after the one that dropped a document are null. With ``invert=True`` exactly those documents stay that the filters
    would drop; a list of True and False inverts single filters, one after the other.
    """

    def __init__(
        self,
        filter_obj: Filters,
        text_field: str | Sequence[str] = "text",
        score_field: str | Sequence[str | None] | None = None,
        invert: bool | Sequence[bool] = False,
        keep_scores: bool = False,
    ) -> None:
        self.filters = as_filters(filter_obj)
        self.text_fields = one_for_each(text_field, len(self.filters), "text_field")
        self.score_fields = score_names(self.filters, score_field, keep_scores, self.text_fields)
        # A single filter is inverted the same way as a list of one.
        self.invert_all = isinstance(invert, bool) and invert and len(self.filters) > 1
        self.invert = one_for_each(invert, len(self.filters), "invert")

    def process(self, task: DocumentBatch) -> DocumentBatch:
        if self.invert_all:
            return self._process_inverted(task)
        # Rows leave the table once, at the end: copying the table for each filter would cost more than scoring.
        left = np.arange(task.num_items)
        texts = {field: texts_of(task, field) for field in self.text_fields}
        verdicts: dict[int, tuple[str, float | None]] = {}
        scored = _scored(task)
        columns: list[tuple[str, Array, Array]] = []
        for one, text, field, invert in zip(
            self.filters, self.text_fields, self.score_fields, self.invert, strict=True
        ):
            scores = scores_of(one, texts[text])
            if field:
                columns.append((field, left, scores))
            mask = mask_of(one, scores) ^ invert
            scored.rules.append((left, scores))
            if mask.all():
                continue
            scored.dropped_by[left[~mask]] = len(scored.rules) - 1
            gone = scores[~mask]
            verdicts.update(
                zip(left[~mask].tolist(), zip(reasons_of(one, gone, invert), numbers(gone), strict=True), strict=True)
            )
            left = left[mask]
            texts = {field: those.select(mask) for field, those in texts.items()}
        for field, rows, scores in columns:
            task = with_column(task, field, scores, rows)
        for field in texts:
            task.cache.pop(field, None)
        dropped = sorted(verdicts)
        mask = np.ones(task.num_items, dtype=bool)
        mask[dropped] = False
        kept = task.keep(mask, [verdicts[row][0] for row in dropped], [verdicts[row][1] for row in dropped])
        kept.account.scored.append(scored)
        kept.cache.update(texts)
        return kept

    def _process_inverted(self, task: DocumentBatch) -> DocumentBatch:
        keep_all = np.ones(task.num_items, dtype=bool)
        scored = _scored(task)
        for one, text, field in zip(self.filters, self.text_fields, self.score_fields, strict=True):
            scores = scores_of(one, texts_of(task, text))
            if field:
                task = with_column(task, field, scores)
            keep_all &= mask_of(one, scores)
            scored.rules.append((None, scores))
        scored.dropped_by[keep_all] = len(self.filters) - 1
        names = ", ".join(one.name for one in self.filters)
        kept = task.keep(~keep_all, f"kept by all of {names}")
        kept.account.scored.append(scored)
        return kept


@builtin
class Score(_FilterStage):
    """Scores documents by one or several filters, or by functions of the text, and drops none.

    ``score_field`` names the column for the scores: one name, or a list with one for each filter; None skips a filter.
    By default scores are stored under ``<filter>_score``.
    """

    def __init__(
        self,
        score_fn: Filters | Callable[[str], Any] | Sequence[DocumentFilter | Callable[[str], Any]],
        score_field: str | Sequence[str | None] | None = None,
        text_field: str | Sequence[str] = "text",
    ) -> None:
        self.filters = as_filters(score_fn, function="score")
        self.text_fields = one_for_each(text_field, len(self.filters), "text_field")
        self.score_fields = score_names(self.filters, score_field, True, self.text_fields)

    def process(self, task: DocumentBatch) -> DocumentBatch:
        for one, text, field in zip(self.filters, self.text_fields, self.score_fields, strict=True):
            if field:
                task = with_column(task, field, scores_of(one, texts_of(task, text)))
        return task


@builtin
class Filter(_DroppingStage):
    """Drops documents by a stored score: by a filter's thresholds, or by a function of the score.

        Filter(lambda score: score > 0.5, "quality")
        Filter(lambda crawl: crawl == "CC-MAIN-2024-10", "meta.src.crawl")

    Several filters have one field each, in order. ``invert`` inverts all of them, or single ones.
    """

    def __init__(
        self,
        filter_fn: Filters | Callable[[Any], bool] | Sequence[DocumentFilter | Callable[[Any], bool]],
        filter_field: str | Sequence[str],
        invert: bool | Sequence[bool] = False,
    ) -> None:
        self.filters = as_filters(filter_fn, function="keep")
        self.text_fields = one_for_each(filter_field, len(self.filters), "filter_field")
        self.invert = one_for_each(invert, len(self.filters), "invert")

    def preload(self) -> None:
        """Load nothing: no document is scored."""

    def process(self, task: DocumentBatch) -> DocumentBatch:
        scored = _scored(task)
        left = np.arange(task.num_items)
        for one, field, invert in zip(self.filters, self.text_fields, self.invert, strict=True):
            scores = column_scores(task, field)
            mask = mask_of(one, scores) ^ invert
            gone = scores[~mask]
            scored.rules.append((left, scores))
            scored.dropped_by[left[~mask]] = len(scored.rules) - 1
            left = left[mask]
            task = task.keep(mask, reasons_of(one, gone, invert), numbers(gone))
        task.account.scored.append(scored)
        return task


def _scored(task: DocumentBatch) -> Scored:
    """Return the record of the scores of a stage, without scores."""
    ids = task.data.column(ID) if task.has_ids else None
    return Scored(ids, dropped_by=np.full(task.num_items, -1, dtype=np.int16))


def scores_of(one: DocumentFilter, texts: Texts) -> Array:
    """Return a score for each document."""
    scores = np.asarray(one.score_batch(texts))
    if scores.ndim < 1 or len(scores) != len(texts):
        raise ValueError(
            f"score_batch of filter {one.name!r} gave scores of shape {scores.shape} for {len(texts)} documents: "
            "it must give one score for each."
        )
    if scores.ndim > 1:  # a list of numbers for each document
        rows = np.empty(len(scores), dtype=object)
        for k, row in enumerate(scores.tolist()):
            rows[k] = row
        return rows
    return scores


def mask_of(one: DocumentFilter, scores: Array) -> Array:
    """Return whether each document is kept."""
    mask = np.asarray(one.keep_batch(scores), dtype=bool)
    if mask.shape != (len(scores),):
        raise ValueError(
            f"keep_batch of filter {one.name!r} gave an array of shape {mask.shape} for {len(scores)} scores: "
            "it must give one True or False for each."
        )
    return mask


def reasons_of(one: DocumentFilter, gone: Array, invert: bool) -> list[str]:
    """Return why documents with these scores are dropped, one reason for each."""
    reasons = f"not {one.name}" if invert else one.reasons(gone)
    return [reasons] * len(gone) if isinstance(reasons, str) else list(reasons)


def one_for_each(given: Any, count: int, argument: str) -> list[Any]:
    """Return one value for each filter: ``given`` for all, or those of a list."""
    if isinstance(given, str | bool):
        return [given] * count
    values = list(given)
    if len(values) != count:
        raise ValueError(f"{argument} has {len(values)} values for {count} filters: give one, or one for each.")
    return values


def score_names(
    filters: list[DocumentFilter],
    given: str | Sequence[str | None] | None,
    keep_scores: bool,
    text_fields: Sequence[str],
) -> list[str | None]:
    """Return the names of the columns for the scores; None for scores that are not stored."""
    if given is None and not keep_scores:
        return [None] * len(filters)
    if given is None:
        names: list[str | None] = []
        for one in filters:
            name = f"{one.name}_score"
            names.append(
                name if name not in names else f"{name}_{sum(one.name == f.name for f in filters[: len(names) + 1])}"
            )
        return names
    names = [given] if isinstance(given, str) else list(given)
    if len(names) != len(filters):
        raise ValueError(f"score_field has {len(names)} names for {len(filters)} filters: each has its own.")
    stored = [name for name in names if name]
    twice = {name for name in stored if stored.count(name) > 1}
    if twice:
        raise ValueError(f"score_field {min(twice)!r} is given twice: the second column would overwrite the first.")
    for name in stored:
        if name in text_fields:
            raise ValueError(f"score_field {name!r} is the field of the text: the scores would overwrite it.")
    return names
