"""The stages that run filters: `ScoreFilter`, `Score` and `Filter`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from gristmill.kernels.texts import Texts
from gristmill.stages.core import ProcessingStage
from gristmill.stages.registry import register
from gristmill.stages.text.filters.document_filter import DocumentFilter
from gristmill.tasks import DocumentBatch

Filters = DocumentFilter | Sequence[DocumentFilter]


def texts_of(batch: DocumentBatch, field: str) -> Texts:
    """The texts of a column, with all that was computed of them since the column was set."""
    texts: Texts | None = batch.cache.get(field)
    if texts is None:
        texts = batch.cache[field] = Texts.of_column(batch.data.column(field))
    return texts


class _FilterStage(ProcessingStage[DocumentBatch, DocumentBatch]):
    filters: list[DocumentFilter]
    text_field: str

    def parts(self) -> Sequence[object]:
        return [part for one in self.filters for part in (one, *one.parts())]

    def preload(self) -> None:
        for one in self.filters:
            one.preload()

    def setup(self, worker_metadata: Any = None) -> None:
        for one in self.filters:
            one.setup()


@register
class ScoreFilter(_FilterStage):
    """Scores documents by one filter or several, one after the other, and drops those that a filter does not keep.

    ``score_field`` names the column for the scores (a list of names for several filters); ``keep_scores`` stores them
    all under ``<filter>_score``. With ``invert`` exactly those documents stay that the filters would drop: those that
    all of them keep go.
    """

    def __init__(
        self,
        filter_obj: Filters,
        text_field: str = "text",
        score_field: str | Sequence[str | None] | None = None,
        invert: bool = False,
        keep_scores: bool = False,
    ) -> None:
        self.filters = list_of_filters(filter_obj)
        self.text_field = text_field
        self.score_fields = score_names(self.filters, score_field, keep_scores)
        self.invert = invert

    def inputs(self) -> tuple[list[str], list[str]]:
        return ["data"], [self.text_field]

    def outputs(self) -> tuple[list[str], list[str]]:
        return ["data"], [name for name in self.score_fields if name]

    def process(self, task: DocumentBatch) -> DocumentBatch:
        if self.invert:
            return self._inverted(task)
        for one, field in zip(self.filters, self.score_fields, strict=True):
            scores = one.score_batch(texts_of(task, self.text_field))
            if field:
                task = with_column(task, field, scores)
            mask = np.asarray(one.keep_batch(scores), dtype=bool)
            if not mask.all():
                gone = scores[~mask]
                task = task.keep(mask, one.reasons(gone), numbers(gone))
        return task

    def _inverted(self, task: DocumentBatch) -> DocumentBatch:
        keep_all = np.ones(task.num_items, dtype=bool)
        for one, field in zip(self.filters, self.score_fields, strict=True):
            scores = one.score_batch(texts_of(task, self.text_field))
            if field:
                task = with_column(task, field, scores)
            keep_all &= np.asarray(one.keep_batch(scores), dtype=bool)
        names = ", ".join(one.name for one in self.filters)
        return task.keep(~keep_all, f"not {names}")


@register
class Score(_FilterStage):
    """Scores documents by one filter or several, or by functions of the text, and drops none."""

    def __init__(
        self,
        score_fn: Filters | Callable[[str], Any],
        score_field: str | Sequence[str | None],
        text_field: str = "text",
    ) -> None:
        if isinstance(score_fn, DocumentFilter | Sequence):
            self.filters = list_of_filters(score_fn)
        else:
            self.filters = [_ByFunction(score_fn)]
        self.text_field = text_field
        self.score_fields = score_names(self.filters, score_field, False)

    def inputs(self) -> tuple[list[str], list[str]]:
        return ["data"], [self.text_field]

    def outputs(self) -> tuple[list[str], list[str]]:
        return ["data"], [name for name in self.score_fields if name]

    def process(self, task: DocumentBatch) -> DocumentBatch:
        for one, field in zip(self.filters, self.score_fields, strict=True):
            if field:
                task = with_column(task, field, one.score_batch(texts_of(task, self.text_field)))
        return task


@register
class Filter(_FilterStage):
    """Drops documents by a score that is there already: by a filter's thresholds, or by a function of the score."""

    def __init__(
        self, filter_fn: Filters | Callable[[Any], bool], filter_field: str | Sequence[str], invert: bool = False
    ) -> None:
        if isinstance(filter_fn, DocumentFilter | Sequence):
            self.filters = list_of_filters(filter_fn)
        else:
            self.filters = [_ByFunction(keep=filter_fn)]
        fields = [filter_field] * len(self.filters) if isinstance(filter_field, str) else list(filter_field)
        if len(fields) != len(self.filters):
            raise ValueError(f"Filter wants one field for each of {len(self.filters)} filters, not {len(fields)}.")
        self.filter_fields = fields
        self.invert = invert

    def inputs(self) -> tuple[list[str], list[str]]:
        return ["data"], list(dict.fromkeys(self.filter_fields))

    def outputs(self) -> tuple[list[str], list[str]]:
        return ["data"], []

    def process(self, task: DocumentBatch) -> DocumentBatch:
        for one, field in zip(self.filters, self.filter_fields, strict=True):
            scores = column_scores(task, field)
            mask = np.asarray(one.keep_batch(scores), dtype=bool) ^ self.invert
            gone = scores[~mask]
            reasons = f"not {one.name}" if self.invert else one.reasons(gone)
            task = task.keep(mask, reasons, numbers(gone))
        return task


class _ByFunction(DocumentFilter):
    """A function of the text or of the score in a filter's clothes."""

    def __init__(self, score: Callable[[str], Any] | None = None, keep: Callable[[Any], bool] | None = None) -> None:
        self._score = score
        self._keep = keep
        self.name = getattr(score or keep, "__name__", "function")

    def score_document(self, text: str) -> Any:
        assert self._score is not None
        return self._score(text)

    def parts(self) -> Sequence[object]:
        return [part for part in (self._score, self._keep) if part is not None]

    def keep_document(self, score: Any) -> bool:
        return self._keep is None or bool(self._keep(score))


def list_of_filters(given: Filters) -> list[DocumentFilter]:
    filters = [given] if isinstance(given, DocumentFilter) else list(given)
    for one in filters:
        if isinstance(one, type):
            raise TypeError(f"{one.__name__} is a class: give an instance, {one.__name__}(...).")
        if not all(hasattr(one, method) for method in ("score_batch", "keep_batch")):
            raise TypeError(f"{one!r} is not a filter: make it a subclass of DocumentFilter.")
    if not filters:
        raise ValueError("there is no filter in the list.")
    return filters


def score_names(
    filters: list[DocumentFilter], given: str | Sequence[str | None] | None, keep_scores: bool
) -> list[str | None]:
    if given is None:
        names: list[str | None] = [f"{one.name}_score" if keep_scores else None for one in filters]
        return names
    names = [given] if isinstance(given, str) else list(given)
    if len(names) != len(filters):
        raise ValueError(f"there are {len(filters)} filters and {len(names)} names of score fields.")
    return names


def with_column(task: DocumentBatch, name: str, values: np.ndarray[Any, Any]) -> DocumentBatch:
    """The same batch with a column more, or another one in its place; what is cached of other columns stays."""
    import pyarrow as pa

    table = task.data
    array = pa.array(values.tolist() if values.dtype == object else values)
    where = table.schema.get_field_index(name)
    cache = {key: value for key, value in task.cache.items() if key != name}
    task.data = table.append_column(name, array) if where < 0 else table.set_column(where, name, array)
    task.cache.update(cache)
    return task


def column_scores(task: DocumentBatch, field: str) -> np.ndarray[Any, Any]:
    column = task.data.column(field)
    array: np.ndarray[Any, Any] = column.to_numpy()
    return array


def numbers(scores: np.ndarray[Any, Any]) -> list[float | None]:
    """Scores as numbers where they are numbers."""
    if scores.dtype != object:
        return [float(score) for score in scores]
    return [float(score) if isinstance(score, int | float) else None for score in scores]
