"""Inference over the texts of a task: batches by token budget, rows in the order of the texts, and out of memory."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Literal

from gristmill.errors import ModelError
from gristmill.lazy import np
from gristmill.models.model import Model
from gristmill.models.tokens import TokenLists, cut

if TYPE_CHECKING:
    import numpy.typing as npt
    import torch

    from gristmill.models.tokens import Ints


BatchSize = int | Literal["auto"]
"""The most texts in a batch; "auto" leaves batches to the measured memory and speed."""


class InferenceEngine:
    """Runs a model over texts in batches that depend on the texts and the token budget only.

    Texts are sorted by length, the longest first, and cut into batches of at most ``max_batch`` texts and
    ``token_budget`` tokens, at least one text each. When a batch runs out of GPU memory, the budget is halved, the rest
    is computed with the smaller one, and it stays. With ``search`` larger budgets are tried until they are no faster.
    """

    def __init__(
        self,
        model: Model,
        *,
        max_batch: int | None = None,
        token_budget: int | None = None,
        search: BudgetSearch | None = None,
    ) -> None:
        self.model = model
        self.max_batch = max_batch
        self.token_budget = token_budget or model.trunk.batch_tokens
        self._search = search
        self._least_used = self.token_budget
        self._out_of_memory = 0

    @classmethod
    def of(cls, model: Model, size: BatchSize) -> InferenceEngine:
        """The engine for a stage's ``model_inference_batch_size``."""
        if size != "auto":
            return cls(model, max_batch=size)
        return cls(model, search=BudgetSearch() if model.device.type == "cuda" else None)

    def run(self, tokens: TokenLists) -> npt.NDArray[Any]:
        """One row per text, float32, in the order of the texts."""
        order = np.argsort(-tokens.lengths, kind="stable")
        rows = np.empty((len(tokens), self.model.head.width), dtype=np.float32)
        self._least_used = self.token_budget
        start = time.perf_counter()
        done = 0
        while done < len(order):
            first = done
            launched, done = self._launch(tokens, order, first)
            if launched:
                rows[order[first:done]] = self.model.collect(launched)
        if self._search is not None and not self._out_of_memory:
            self.token_budget = self._search.after(
                self.token_budget, int(tokens.offsets[-1]), time.perf_counter() - start, self.model.device
            )
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
                short = str(error).split(". ")[0]
            else:
                done = stop
                continue
            self._halve(lengths[start:stop], short)  # here the traceback no longer holds the tensors of the batch
            return launched, start
        return launched, done

    def _halve(self, lengths: Ints, error: str) -> None:
        """A batch of texts of these lengths ran out of memory: keep half its tokens as the budget from now on."""
        import torch

        self._out_of_memory += 1
        self._search = None
        longest = int(lengths[0])
        if len(lengths) == 1:
            raise ModelError(
                f"a text of {longest:,} tokens does not fit into the memory of the GPU ({error}).\n"
                "    limit the text with max_chars or max_seq_length, or give the worker a larger share of the GPU."
            )
        self.token_budget = self._least_used = max(int(lengths.sum()) // 2, longest)
        torch.cuda.empty_cache()

    def take_notes(self) -> dict[str, int]:
        """What the account of a block says about how it was computed, since this was last called."""
        notes = {"token_budget": self._least_used}
        if self._out_of_memory:
            notes["out_of_memory"] = self._out_of_memory
        self._out_of_memory = 0
        return notes


class BudgetSearch:
    """Finds the token budget with the most tokens per second: it is doubled as long as that pays and memory allows.

    Each budget is judged by the first task that fills it several times.
    """

    GAIN = 1.02
    """How much faster a larger budget must be."""
    FILLED = 4
    """How often a task must fill a budget to be a measurement of it."""
    MEMORY = 0.45
    """The share of the memory that a budget may take, so that twice as much still fits."""

    def __init__(self) -> None:
        self._best = (0.0, 0)
        self._is_warm = False
        self._is_over = False

    def after(self, budget: int, tokens: int, seconds: float, device: torch.device) -> int:
        """Return the budget for the next task, after one of so many tokens took so long with ``budget``."""
        if self._is_over or tokens < self.FILLED * budget:
            return budget
        if not self._is_warm:  # the first task also loads kernels
            self._is_warm = True
            return budget
        speed = tokens / seconds
        if speed < self._best[0] * self.GAIN:
            self._is_over = True
            return self._best[1]
        self._best = (speed, budget)
        if _share_of_memory(device) > self.MEMORY:
            self._is_over = True
            return budget
        return 2 * budget


def _share_of_memory(device: torch.device) -> float:
    """The share of the memory that this process may use which it used at most."""
    import torch

    if device.type != "cuda":
        return 0.0
    limit = torch.cuda.get_device_properties(device).total_memory * torch.cuda.get_per_process_memory_fraction(device)
    return torch.cuda.max_memory_allocated(device) / limit
