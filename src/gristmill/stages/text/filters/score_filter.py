"""The stages that run filters: `ScoreFilter`, `Score` and `Filter`."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any, Self

from gristmill.kernels import features
from gristmill.lazy import Array, np
from gristmill.stages.core import ProcessingStage
from gristmill.stages.protocols import Scoring
from gristmill.stages.registry import builtin
from gristmill.stages.text.filters.adapters import Filters, as_filters
from gristmill.stages.text.filters.columns import column_scores, numbers, with_column
from gristmill.stages.text.filters.document_filter import Contents, DocumentFilter
from gristmill.stages.text.filters.remaining import Remaining, reasons_of, scored_of
from gristmill.tasks import DocumentBatch


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

    def looks_at(self) -> list[str]:
        return list(dict.fromkeys(name for one in self.filters for name in one.other_fields))

    def outputs(self) -> tuple[list[str], list[str]]:
        return ["data"], [name for name in self.score_fields if name]

    def resolved_arguments(self) -> dict[str, Any]:
        return {"text_field": one_or_each(self.text_fields)}

    def made_of(self) -> Sequence[object]:
        return [part for one in self.filters for part in (one, *one.made_of())]

    def check_needs(self) -> None:
        for one in self.filters:
            one.check_needs()

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

    Each filter gets the documents that earlier ones kept. ``text_field`` is one for all or one for each filter; by
    default "text", and "image" for filters of images. It may be a path into objects, such as ``meta.src.text``.
    ``score_field`` names the column for the scores (a list of names for several filters, None for none);
    ``keep_scores`` stores all scores under ``<filter>_score``. Scores of filters after the one that dropped a document
    are null. With ``invert=True`` exactly those documents stay that the filters would drop; a list of True and False
    inverts single filters, one after the other. Images that cannot be read are bad records, neither kept nor dropped.
    """

    def __init__(
        self,
        filter_obj: Filters,
        text_field: str | Sequence[str | None] | None = None,
        score_field: str | Sequence[str | None] | None = None,
        invert: bool | Sequence[bool] = False,
        keep_scores: bool = False,
    ) -> None:
        self.filters = as_filters(filter_obj)
        self.text_fields = fields_of(self.filters, text_field)
        self.score_fields = score_names(self.filters, score_field, keep_scores, self.text_fields)
        # A single filter is inverted the same way as a list of one.
        self.invert_all = isinstance(invert, bool) and invert and len(self.filters) > 1
        self.invert = one_for_each(invert, len(self.filters), "invert")

    def process(self, task: DocumentBatch) -> DocumentBatch:
        if self.invert_all:
            return self._process_inverted(task)
        task = self._readable(task)
        # Rows leave the table once, at the end: copying the table for each filter would cost more than scoring.
        left = Remaining(task, self.filters, self.text_fields)
        columns: list[tuple[str, Array, Array]] = []
        for one, text, field, invert in zip(
            self.filters, self.text_fields, self.score_fields, self.invert, strict=True
        ):
            scores = scores_of(one, left.contents_of(one, text))
            if field:
                columns.append((field, left.rows, scores))
            left.decide(one, scores, mask_of(one, scores) ^ invert, invert)
        for field, rows, scores in columns:
            task = with_column(task, field, scores, rows)
        return left.kept_of(task)

    def _readable(self, task: DocumentBatch) -> DocumentBatch:
        """Return the batch without documents that the first filter of each field cannot score."""
        seen: set[str] = set()
        for one, field in zip(self.filters, self.text_fields, strict=True):
            if self.invert_all or one.contents_key(field) not in seen:  # inverted, all filters score all documents
                task = one.without_unreadable(task, field)
                seen.add(one.contents_key(field))
        return task

    def _process_inverted(self, task: DocumentBatch) -> DocumentBatch:
        task = self._readable(task)
        keep_all = np.ones(task.num_items, dtype=bool)
        scored = scored_of(task)
        for one, text, field in zip(self.filters, self.text_fields, self.score_fields, strict=True):
            scores = scores_of(one, one.contents_of(task, text))
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
        text_field: str | Sequence[str | None] | None = None,
    ) -> None:
        self.filters = as_filters(score_fn, function="score")
        self.text_fields = fields_of(self.filters, text_field)
        self.score_fields = score_names(self.filters, score_field, True, self.text_fields)

    def process(self, task: DocumentBatch) -> DocumentBatch:
        for one, text, field in zip(self.filters, self.text_fields, self.score_fields, strict=True):
            if field:
                task = one.without_unreadable(task, text)
                task = with_column(task, field, scores_of(one, one.contents_of(task, text)))
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

    def check_needs(self) -> None:
        """Need nothing: no document is scored."""

    def preload(self) -> None:
        """Load nothing: no document is scored."""

    def process(self, task: DocumentBatch) -> DocumentBatch:
        scored = scored_of(task)
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


def scores_of(one: DocumentFilter, documents: Contents) -> Array:
    """Return a score for each document."""
    scores = np.asarray(one.score_contents(documents))
    if scores.ndim < 1 or len(scores) != len(documents):
        raise ValueError(
            f"score_batch of filter {one.name!r} gave scores of shape {scores.shape} for {len(documents)} documents: "
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


def fields_of(filters: Sequence[DocumentFilter], given: str | Sequence[str | None] | None) -> list[str]:
    """Return the column that each filter reads: its own default where none is given."""
    fields = [None] * len(filters) if given is None else one_for_each(given, len(filters), "text_field")
    return [one.default_field if field is None else field for one, field in zip(filters, fields, strict=True)]


def one_or_each(fields: Sequence[str]) -> str | list[str]:
    """Return the field that is the same for all, or the list of them."""
    return fields[0] if len(set(fields)) == 1 else list(fields)


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
