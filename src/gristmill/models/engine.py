"""Runs a model over many texts: in batches of similar length, with the results in the order of the texts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from gristmill.lazy import np

if TYPE_CHECKING:
    import numpy.typing as npt

    from gristmill.models.model import Model
    from gristmill.models.tokens import TokenLists

BUDGET = 16_384
"""Tokens of a batch, unless another budget is given."""


class InferenceEngine:
    """Computes the rows of texts. What is computed together depends on the texts and the budget alone."""

    def __init__(self, model: Model, *, max_batch: int, token_budget: int | None = None) -> None:
        self.model = model
        self.max_batch = max_batch
        self.token_budget = token_budget or BUDGET
        self._notes: Counter[str] = Counter()

    def run(self, tokens: TokenLists) -> npt.NDArray[Any]:
        """The rows of these texts, in their order."""
        rows = np.empty((len(tokens), self.model.head.width), dtype=np.float32)
        order = np.argsort(-tokens.lengths, kind="stable")
        for batch in self._batches(tokens.lengths[order]):
            places = order[batch]
            rows[places] = self.model.collect([self.model.launch(tokens.take(places))])
        self._notes["token_budget"] = self.token_budget
        return rows

    def take_notes(self) -> dict[str, int]:
        """Return what was noted since the last call."""
        notes, self._notes = dict(self._notes), Counter()
        return notes

    def _batches(self, lengths: Any) -> Iterator[slice]:
        """Batches of texts by falling length, each within the budget when its texts are as long as its first."""
        start = 0
        while start < len(lengths):
            count = max(1, min(self.max_batch, self.token_budget // max(1, int(lengths[start]))))
            yield slice(start, start + count)
            start += count
