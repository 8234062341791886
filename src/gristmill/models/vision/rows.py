"""Inference over items of a fixed shape: batches of a fixed size, rows in order, and out of memory."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from gristmill.errors import ModelError
from gristmill.lazy import Array, np
from gristmill.logs import logger
from gristmill.models.engine import LaunchedInference, Pending, checked, without_waiting

if TYPE_CHECKING:
    import torch

BATCH_SIZE = "inference_batch_size"
"""A note in the account of a block."""
AHEAD = 4
"""Batches of a task that are launched before the first of them is waited for."""
MULTIPLE = 8
"""Batches on a GPU are filled up to a multiple of this."""


class Items:
    """The inputs of a task: arrays of the same shape, in parts that are not joined."""

    def __init__(self, parts: Sequence[Array]) -> None:
        """``parts``: (items, ...) each."""
        self._parts = [part for part in parts if len(part)]
        self._starts = np.cumsum([0, *(len(part) for part in self._parts)])

    def __len__(self) -> int:
        return int(self._starts[-1])

    def slice(self, start: int, stop: int) -> Array:
        """Some of the items; copied only if they are in several parts."""
        found = []
        for part, first in zip(self._parts, self._starts, strict=False):
            if first < stop and first + len(part) > start:
                found.append(part[max(0, start - first) : stop - first])
        return found[0] if len(found) == 1 else np.concatenate(found)


class RowModel:
    """A module that makes one row of numbers of each item. It belongs to one device and one worker."""

    def __init__(self, module: Any, device: torch.device, width: int, compiled: bool) -> None:
        self.device = device
        self.width = width
        self._module = module
        self._compiled: Any = None
        self._copies: torch.cuda.Stream | None = None
        """The stream on which inputs are copied to a GPU while it computes."""
        if compiled:
            import torch

            self._compiled = torch.compile(module)

    def launch(self, items: Array, size: int) -> torch.Tensor:
        """Begin to compute the rows of at most ``size`` items. On a GPU the tensor is filled later.

        A CPU computes them one by one: the numbers of one image fill its caches, and a row does not depend on the items
        beside it. A GPU computes batches of ``size`` items or of a multiple of 8 that is less, the missing ones of
        zeros. A compiled model is made for all sizes at once.
        """
        import torch

        with torch.inference_mode():
            if self.device.type != "cuda":
                return torch.cat([self._module(torch.from_numpy(one[None].copy())) for one in items])
            filled_up = min(size, -(-len(items) // MULTIPLE) * MULTIPLE)
            pinned = torch.empty((filled_up, *items.shape[1:]), dtype=_torch_type(items), pin_memory=True)
            filled = pinned.numpy()
            filled[: len(items)] = items
            filled[len(items) :] = 0
            batch = self._copied(pinned)
            if self._compiled is not None and size > MULTIPLE:
                torch._dynamo.maybe_mark_dynamic(batch, 0)
            found: torch.Tensor = self._on_gpu(batch)
            return found[: len(items)].float()

    def _copied(self, pinned: torch.Tensor) -> torch.Tensor:
        """Copy a batch to the GPU beside the batch that it computes."""
        import torch

        if self._copies is None:
            self._copies = torch.cuda.Stream(self.device)
        computing = torch.cuda.current_stream(self.device)
        with torch.cuda.stream(self._copies):
            batch = pinned.to(self.device, non_blocking=True)
        computing.wait_stream(self._copies)
        batch.record_stream(computing)
        return batch

    def warm_up(self, item: tuple[int, ...], kind: str, size: int) -> None:
        """Compute a batch of zeros, so that a compiled model is compiled before the first task."""
        if self._compiled is not None:
            self.launch(np.zeros((size, *item), dtype=kind), size).cpu()

    def _on_gpu(self, batch: torch.Tensor) -> Any:
        if self._compiled is None:
            return self._module(batch)
        import torch

        try:
            return self._compiled(batch)
        except torch.OutOfMemoryError:
            raise
        except Exception as error:  # the compiler, and the tools that it starts, raise errors of many kinds
            logger.warning("the image model runs without torch.compile, which failed: %s", str(error).split("\n")[0])
            self._compiled = None
            return self._module(batch)


class RowEngine:
    """Runs a model over items in their order, ``size`` at a time.

    When a batch runs out of GPU memory, the size is halved, the rest is computed with the smaller one, and it stays.
    """

    def __init__(self, model: RowModel, size: int, what: str = "image") -> None:
        """``what`` an item is, in messages."""
        self.model = model
        self.size = size
        self.what = what
        self._launcher: ThreadPoolExecutor | None = None

    def warm_up(self, item: tuple[int, ...], kind: str) -> None:
        """Compile the model, if it is to be compiled, before the first task."""
        self.model.warm_up(item, kind, self.size)

    def run(self, items: Items) -> Array:
        """One row per item, float32, in order."""
        rows: Array = without_waiting(self.begin().run(items))
        return rows

    def begin(self) -> RowInference:
        """Begin the computation of a task."""
        return RowInference(self, None)

    def begin_async(self) -> RowInference:
        """Begin the computation of a task beside others. A thread launches the batches of all tasks one by one."""
        if self._launcher is None:
            self._launcher = ThreadPoolExecutor(1, "launch")
        return RowInference(self, self._launcher)

    def close(self) -> None:
        if self._launcher is not None:
            self._launcher.shutdown()
            self._launcher = None

    def halve(self, tried: int, error: str) -> None:
        """A batch of this size ran out of memory: use at most half of it from now on."""
        import torch

        if tried <= 1:
            raise ModelError(
                f"one {self.what} does not fit into the memory of the GPU ({error}).\n"
                "    give the worker a larger share of the GPU: num_gpus_per_worker, or with_(resources=...)."
            )
        self.size = min(self.size, tried // 2)
        torch.cuda.empty_cache()


class RowInference(LaunchedInference[Items]):
    """The computation of one task."""

    def __init__(self, engine: RowEngine, launcher: ThreadPoolExecutor | None) -> None:
        super().__init__(launcher)
        self._engine = engine
        self._least = engine.size

    async def run(self, items: Items) -> Array:
        """One row per item, float32, in order."""
        rows = np.empty((len(items), self._engine.model.width), dtype=np.float32)
        done = 0
        while done < len(items):
            first = done
            pending, done = await self._launched(items, first)
            if pending is not None:
                rows[first:done] = await self._arrived(pending)
        return checked(rows, self._engine.what)

    def _launch(self, inputs: Items, done: int) -> tuple[Pending | None, int]:
        """Launch some batches, or fewer if memory ran out. Return them, and how many items are launched now."""
        import torch

        engine = self._engine
        launched: list[torch.Tensor] = []
        while done < len(inputs) and len(launched) < AHEAD:
            size = engine.size
            self._least = min(self._least, size)
            stop = min(len(inputs), done + size)
            try:
                launched.append(engine.model.launch(inputs.slice(done, stop), size))
            except torch.OutOfMemoryError as error:
                short = str(error).split(". ")[0]
            else:
                done = stop
                continue
            # here the traceback no longer holds the tensors of the batch
            self._out_of_memory += 1
            engine.halve(size, short)
            self._least = min(self._least, engine.size)
            break
        return (Pending(launched) if launched else None), done

    @property
    def notes(self) -> dict[str, int]:
        """The settings that the account of a block reports."""
        return {BATCH_SIZE: self._least}


def _torch_type(items: Array) -> Any:
    import torch

    return {"uint8": torch.uint8, "int32": torch.int32}[str(items.dtype)]
