"""Inference over the texts of a task: batches by token budget, rows in the order of the texts, and out of memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from gristmill.lazy import np
from gristmill.models.model import Model
from gristmill.models.tokens import TokenLists

if TYPE_CHECKING:
    import numpy.typing as npt
    import torch

    from gristmill.models.tokens import Ints

DEFAULT_BUDGET = 65_536
"""Tokens in a batch: enough to fill a large GPU, and a few hundred MB for models of the size of BERT."""


class TextTooLong(Exception):
    """One text alone needs more memory than there is."""


class InferenceEngine:
    """Runs a model over texts in batches that depend on the texts and the token budget only.

    Texts are sorted by length, the longest first, and cut into batches of at most ``max_batch`` texts and
    ``token_budget`` tokens, at least one text each. When a batch runs out of GPU memory, the budget is halved, the rest
    is computed with the smaller one, and it stays.
    """

    def __init__(self, model: Model, *, max_batch: int | None = None, token_budget: int | None = None) -> None:
        self.model = model
        self.max_batch = max_batch
        self.token_budget = token_budget or DEFAULT_BUDGET
        self._out_of_memory = 0

    def run(self, tokens: TokenLists) -> npt.NDArray[Any]:
        """One row per text, float32, in the order of the texts."""
        order = np.argsort(-tokens.lengths, kind="stable")
        rows = np.empty((len(tokens), self.model.head.width), dtype=np.float32)
        done = 0
        while done < len(order):
            launched, done = self._launch(tokens, order, done)
            if launched:
                rows[order[done - sum(map(len, launched)) : done]] = self.model.collect(launched)
        return rows

    def _launch(self, tokens: TokenLists, order: Ints, done: int) -> tuple[list[torch.Tensor], int]:
        """Launch batches until all texts are, or memory ran out. Return what was launched, and how many texts are."""
        import torch

        launched: list[torch.Tensor] = []
        lengths = tokens.lengths[order]
        for start, stop in cut(lengths, done, self.token_budget, self.max_batch):
            try:
                launched.append(self.model.launch(tokens.take(order[start:stop])))
            except torch.OutOfMemoryError as error:
                self._halve(lengths[start:stop], error)
                return launched, start
            done = stop
        return launched, done

    def _halve(self, lengths: Ints, error: Exception) -> None:
        """A batch of texts of these lengths ran out of memory: keep half its tokens as the budget from now on."""
        import torch

        self._out_of_memory += 1
        longest = int(lengths[0])
        if len(lengths) == 1:
            raise TextTooLong(
                f"a text of {longest:,} tokens does not fit into the memory of the GPU: {error}"
            ) from None
        self.token_budget = max(int(lengths.sum()) // 2, longest)
        torch.cuda.empty_cache()

    def take_notes(self) -> dict[str, int]:
        """What the account of a block says about how it was computed, since this was last called."""
        notes = {"token_budget": self.token_budget, "out_of_memory": self._out_of_memory}
        self._out_of_memory = 0
        return notes


def cut(lengths: Ints, first: int, budget: int, most: int | None) -> Iterator[tuple[int, int]]:
    """Batches of neighbours from ``first`` on, as positions: at most ``budget`` tokens and ``most`` texts."""
    ends = np.cumsum(lengths)
    start = first
    while start < len(lengths):
        before = int(ends[start - 1]) if start else 0
        stop = max(int(np.searchsorted(ends, before + budget, side="right")), start + 1)
        if most is not None:
            stop = min(stop, start + most)
        yield start, stop
        start = stop
