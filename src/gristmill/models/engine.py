"""Inference over the texts of a task: batches by token budget, rows in the order of the texts, and out of memory."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

from gristmill.errors import ModelError
from gristmill.lazy import np
from gristmill.models.model import Model
from gristmill.models.tokens import TokenLists, cut

if TYPE_CHECKING:
    import numpy.typing as npt
    import torch

    from gristmill.models.tokens import Ints


R = TypeVar("R")
Inputs = TypeVar("Inputs")
TOKEN_BUDGET = "token_budget"
"""A setting of stages, and a note in the account of a block."""
OUT_OF_MEMORY = "times out of GPU memory, then smaller batches"
"""A counter of runs."""
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
        self._measuring = asyncio.Lock()
        """Held by a task while its speed is measured: it must be alone then."""
        self._launcher: ThreadPoolExecutor | None = None

    @classmethod
    def of(cls, model: Model, size: BatchSize, known_budget: int | None = None) -> InferenceEngine:
        """The engine for a stage's ``model_inference_batch_size``. A budget that is known is not searched for."""
        if size != "auto":
            return cls(model, max_batch=size)
        is_search = model.device.type == "cuda" and known_budget is None
        return cls(model, token_budget=known_budget, search=BudgetSearch() if is_search else None)

    def run(self, tokens: TokenLists) -> npt.NDArray[Any]:
        """One row per text, float32, in the order of the texts."""
        return without_waiting(self.begin().run(tokens))

    def begin(self) -> TaskInference:
        """Begin the computation of a task."""
        return TaskInference(self, None)

    def begin_async(self) -> TaskInference:
        """Begin the computation of a task beside others.

        A thread launches the batches of all tasks one after another, so that the GPU has the next ones when it ends
        those of one task, and the event loop is free.
        """
        if self._launcher is None:
            self._launcher = ThreadPoolExecutor(1, "launch")
        return TaskInference(self, self._launcher)

    def close(self) -> None:
        if self._launcher is not None:
            self._launcher.shutdown()
            self._launcher = None

    @property
    def found_budget(self) -> int | None:
        """The budget that a search has ended with."""
        return self.token_budget if self._search is not None and self._search.is_over else None

    @asynccontextmanager
    async def measured(self, tokens: TokenLists) -> AsyncIterator[None]:
        """While a budget is searched for, measure how long it takes to compute these tokens."""
        if self._search is None or self._search.is_over:
            yield
            return
        async with self._measuring:
            start, budget = time.perf_counter(), self.token_budget
            yield
            if self._search is not None and budget == self.token_budget:
                seconds = time.perf_counter() - start
                self.token_budget = self._search.after(budget, int(tokens.offsets[-1]), seconds, self.model.device)

    def halve(self, lengths: Ints, error: str) -> int:
        """A batch of texts of these lengths ran out of memory: keep half its tokens as the budget from now on."""
        import torch

        self._search = None
        longest = int(lengths[0])
        if len(lengths) == 1:
            raise ModelError(
                f"a text of {longest:,} tokens does not fit into the memory of the GPU ({error}).\n"
                "    limit the text with max_chars or max_seq_length, or give the worker a larger share of the GPU."
            )
        self.token_budget = min(self.token_budget, max(int(lengths.sum()) // 2, longest))
        torch.cuda.empty_cache()
        return self.token_budget


class LaunchedInference(Generic[Inputs]):
    """The computation of one task: batches are launched, and their rows arrive later."""

    def __init__(self, launcher: ThreadPoolExecutor | None) -> None:
        """Without a ``launcher``, nothing is waited for asynchronously."""
        self._launcher = launcher
        self._out_of_memory = 0

    def _launch(self, inputs: Inputs, done: int) -> tuple[Pending | None, int]:
        """Launch batches from input ``done`` on. Return what was launched, and how many inputs are launched now."""
        raise NotImplementedError

    async def _launched(self, inputs: Inputs, done: int) -> tuple[Pending | None, int]:
        if self._launcher is None:
            return self._launch(inputs, done)
        return await asyncio.get_running_loop().run_in_executor(self._launcher, self._launch, inputs, done)

    async def _arrived(self, pending: Pending) -> npt.NDArray[Any]:
        return pending.wait() if self._launcher is None else await asyncio.to_thread(pending.wait)

    @property
    def counters(self) -> dict[str, int]:
        return {OUT_OF_MEMORY: self._out_of_memory} if self._out_of_memory else {}


class TaskInference(LaunchedInference["SortedTexts"]):
    """The computation of one task, in one or several passes of the model."""

    def __init__(self, engine: InferenceEngine, launcher: ThreadPoolExecutor | None) -> None:
        super().__init__(launcher)
        self._engine = engine
        self._least_budget = engine.token_budget

    async def run(self, tokens: TokenLists) -> npt.NDArray[Any]:
        """One row per text, float32, in the order of the texts."""
        self._engine.model.check(tokens)
        texts = SortedTexts.of(tokens)
        rows = np.empty((len(tokens), self._engine.model.head.width), dtype=np.float32)
        done = 0
        async with self._engine.measured(tokens):
            while done < len(texts.order):
                first = done
                pending, done = await self._launched(texts, first)
                if pending is not None:
                    rows[texts.order[first:done]] = await self._arrived(pending)
        return checked(rows, "text")

    def _launch(self, inputs: SortedTexts, done: int) -> tuple[Pending | None, int]:
        """Launch batches until all texts are, or memory ran out. Return what was launched, and how many texts are."""
        import torch

        engine, launched = self._engine, []
        self._least_budget = min(self._least_budget, engine.token_budget)
        for start, stop in cut(inputs.lengths, done, engine.token_budget, engine.max_batch):
            try:
                launched.append(engine.model.launch(inputs.tokens.take(inputs.order[start:stop])))
            except torch.OutOfMemoryError as error:
                short = str(error).split(". ")[0]
            else:
                done = stop
                continue
            # here the traceback no longer holds the tensors of the batch
            self._out_of_memory += 1
            self._least_budget = engine.halve(inputs.lengths[start:stop], short)
            break
        return (Pending(launched) if launched else None), done

    @property
    def notes(self) -> dict[str, int]:
        """The settings that the account of a block reports."""
        return {TOKEN_BUDGET: self._least_budget}


def checked(rows: npt.NDArray[Any], what: str) -> npt.NDArray[Any]:
    """Return rows, one for each ``what``, or raise a `ModelError` if they are no results."""
    wrong = int((~np.isfinite(rows).all(axis=1)).sum())
    if wrong:
        raise ModelError(
            f"the model made numbers that are not finite of {wrong:,} of {len(rows):,} {what}s: its weights are "
            "damaged, or its states too large for 16 bits.\n"
            "    set autocast=False on a GPU, or get the checkpoint again."
        )
    return rows


@dataclass(frozen=True, slots=True)
class SortedTexts:
    """The texts of a task, and their order by length, the longest first."""

    tokens: TokenLists
    order: Ints
    lengths: Ints
    """In that order."""

    @classmethod
    def of(cls, tokens: TokenLists) -> SortedTexts:
        lengths = tokens.lengths
        order = np.argsort(-lengths, kind="stable")
        return cls(tokens, order, lengths[order])


class Pending:
    """Rows that were launched, on their way to the memory of the CPU."""

    def __init__(self, launched: list[torch.Tensor]) -> None:
        import torch

        rows = torch.cat(launched)
        self._event: torch.cuda.Event | None = None
        if rows.device.type == "cuda":
            pinned = torch.empty(rows.shape, dtype=rows.dtype, pin_memory=True)
            pinned.copy_(rows, non_blocking=True)
            self._event = torch.cuda.Event(blocking=True)
            self._event.record()
            rows = pinned
        self._rows = rows

    def wait(self) -> npt.NDArray[Any]:
        """Wait until they have arrived."""
        if self._event is not None:
            self._event.synchronize()
        return self._rows.numpy()


def without_waiting(work: Coroutine[Any, Any, R]) -> R:
    """Return the result of a coroutine that awaits nothing that is not done."""
    try:
        work.send(None)
    except StopIteration as end:
        result: R = end.value
        return result
    work.close()
    raise RuntimeError("the coroutine waits for something, so it needs an event loop")


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
        self.is_over = False

    def after(self, budget: int, tokens: int, seconds: float, device: torch.device) -> int:
        """Return the budget for the next task, after one of so many tokens took so long with ``budget``."""
        if self.is_over or tokens < self.FILLED * budget:
            return budget
        if not self._is_warm:  # the first task also loads kernels
            self._is_warm = True
            return budget
        speed = tokens / seconds
        if speed < self._best[0] * self.GAIN:
            self.is_over = True
            return self._best[1]
        self._best = (speed, budget)
        if _share_of_memory(device) > self.MEMORY:
            self.is_over = True
            return budget
        return 2 * budget


def _share_of_memory(device: torch.device) -> float:
    """The share of the memory that this process may use which it used at most."""
    import torch

    if device.type != "cuda":
        return 0.0
    limit = torch.cuda.get_device_properties(device).total_memory * torch.cuda.get_per_process_memory_fraction(device)
    return torch.cuda.max_memory_allocated(device) / limit
