"""Documents under several filters: who is still there, and why the others went."""

from __future__ import annotations

from typing import Any

import numpy as np

from gristmill.kernels.texts import Texts
from gristmill.stages.text.filters.columns import texts_of, with_column
from gristmill.tasks import DocumentBatch

Array = np.ndarray[Any, Any]


class Sieve:
    """Lets documents of a batch go one filter after the other; the table is copied once, at the end.

    ``left`` are the rows that are still there; what is asked of the sieve and told to it is of those.
    """

    def __init__(self, task: DocumentBatch) -> None:
        self._task = task
        self.left = np.arange(task.num_items)
        self._texts: dict[str, Texts] = {}
        self._reasons: dict[int, str] = {}
        self._scores: dict[int, float | None] = {}
        self._columns: dict[str, Array] = {}

    def texts(self, field: str) -> Texts:
        """The texts of those that are left. What is computed of them is not computed of the others."""
        if field not in self._texts:
            texts = texts_of(self._task, field)
            gone = len(self.left) < self._task.num_items
            self._texts[field] = texts.select(self._mask()) if gone else texts
        return self._texts[field]

    def column(self, name: str, values: Array) -> None:
        """A new column, or other values for one. Those that have gone have none."""
        if len(self.left) == self._task.num_items:
            self._columns[name] = values
            return
        whole = np.empty(self._task.num_items, dtype=object)
        whole[self.left] = values
        self._columns[name] = whole

    def drop(self, mask: Array, reasons: Any, scores: Any) -> None:
        """Let those go for which ``mask`` is false, with a reason and a score for each of them, or a reason for all."""
        gone = self.left[~mask]
        if not len(gone):
            return
        rows = gone.tolist()
        self._reasons.update(zip(rows, [reasons] * len(rows) if isinstance(reasons, str) else reasons, strict=True))
        if scores is not None:
            self._scores.update(zip(rows, scores, strict=True))
        self.left = self.left[mask]
        self._texts = {field: texts.select(mask) for field, texts in self._texts.items()}

    def batch(self) -> DocumentBatch:
        """What is left, with an account of the rest."""
        task = self._task
        for name, values in self._columns.items():
            task = with_column(task, name, values)
        for field in self._texts:
            task.cache.pop(field, None)  # what is known of those that are left comes below
        if len(self.left) < task.num_items:
            rows = sorted(self._reasons)
            task = task.keep(self._mask(), [self._reasons[r] for r in rows], [self._scores.get(r) for r in rows])
        task.cache.update({field: texts for field, texts in self._texts.items() if field not in self._columns})
        return task

    def _mask(self) -> Array:
        mask = np.zeros(self._task.num_items, dtype=bool)
        mask[self.left] = True
        return mask
