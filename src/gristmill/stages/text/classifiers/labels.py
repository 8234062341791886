"""Documents dropped by the label that a classifier gave them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gristmill.stages.core import ProcessingStage
from gristmill.stages.registry import builtin
from gristmill.stages.text.filters.columns import column_of
from gristmill.tasks import DocumentBatch


@builtin
class LabelFilter(ProcessingStage[DocumentBatch, DocumentBatch]):
    """Keeps documents with one of the labels ``filter_by`` in ``label_field``. The reason of the others is their label.

    ``score_field`` is a column of numbers that is kept with the reason. A document with several labels, in a list, is
    kept for any of them. Labels of True and False are named as such: ``filter_by=[False]``.
    """

    accounts_for_documents = True
    row_wise = True

    def __init__(self, filter_by: Sequence[str | bool], label_field: str, score_field: str | None = None) -> None:
        if isinstance(filter_by, str) or not filter_by:
            raise ValueError(f"LabelFilter: filter_by must be a list of labels, not {filter_by!r}.")
        self.filter_by = list(filter_by)
        self.label_field = label_field
        self.score_field = score_field
        self._wanted = {str(label) for label in filter_by}

    def inputs(self) -> tuple[list[str], list[str]]:
        return ["data"], [self.label_field, *([self.score_field] if self.score_field else [])]

    def process(self, task: DocumentBatch) -> DocumentBatch:
        labels = column_of(task, self.label_field).to_pylist()
        mask = [not self._wanted.isdisjoint(_names(label)) for label in labels]
        gone = [", ".join(_names(label)) or "no label" for label, kept in zip(labels, mask, strict=True) if not kept]
        scores = None
        if self.score_field is not None:
            found = column_of(task, self.score_field).to_pylist()
            scores = [score for score, kept in zip(found, mask, strict=True) if not kept]
        return task.keep(mask, gone, scores)


def _names(label: Any) -> list[str]:
    if label is None:
        return []
    return [str(one) for one in label] if isinstance(label, list) else [str(label)]
