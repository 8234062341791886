"""Batches of a fixed size, several tasks at a time, and out of memory."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import numpy as np
import pytest

from gristmill.errors import ModelError
from gristmill.models.vision.rows import BATCH_SIZE, Items, RowEngine, RowModel

torch = pytest.importorskip("torch")


class Means(torch.nn.Module):  # type: ignore[misc]
    def forward(self, items: Any) -> Any:
        return items.float().mean(dim=(1, 2), keepdim=False)


class Small(RowModel):
    """A model whose device has memory for so many items at a time."""

    def __init__(self, memory: int) -> None:
        super().__init__(Means(), torch.device("cpu"), 3, compiled=False)
        self.memory = memory
        self.batches: list[int] = []

    def launch(self, items: Any, size: int) -> Any:
        self.batches.append(len(items))
        if len(items) > self.memory:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate much.")
        return super().launch(items, size)


def made(count: int) -> Any:
    seed = random.randrange(2**31)
    print("seed", seed)
    return np.random.default_rng(seed).integers(0, 256, (count, 4, 5, 3), dtype=np.uint8)


def test_out_of_memory_halves_the_batch_and_keeps_order() -> None:
    items = made(45)
    model = Small(memory=6)
    engine = RowEngine(model, 32)

    task = engine.begin()
    rows = asyncio.run(task.run(Items([items[:7], items[7:]])))

    assert np.allclose(rows, items.astype(np.float64).mean(axis=(1, 2)), atol=1e-4)
    assert engine.size == 4
    assert model.batches[:5] == [32, 16, 8, 4, 4]
    assert task.notes == {BATCH_SIZE: 4}
    assert list(task.counters.values()) == [3]
    later = engine.begin()
    asyncio.run(later.run(Items([items])))
    assert not later.counters


def test_one_image_beyond_the_memory_is_an_error() -> None:
    with pytest.raises(ModelError, match="one image does not fit"):
        RowEngine(Small(memory=0), 4).run(Items([made(3)]))


def test_tasks_at_the_same_time_have_their_own_rows() -> None:
    engine = RowEngine(Small(memory=5), 8)
    tasks = [made(count) for count in (1, 30, 0, 17, 8)]

    async def run() -> list[Any]:
        return await asyncio.gather(*(engine.begin_async().run(Items([one])) for one in tasks))

    found = asyncio.run(run())
    engine.close()

    for rows, items in zip(found, tasks, strict=True):
        assert rows.shape == (len(items), 3)
        assert np.allclose(rows, items.astype(np.float64).mean(axis=(1, 2)), atol=1e-4)


def test_items_are_cut_across_parts() -> None:
    items = made(20)
    parts = Items([items[:3], items[3:3], items[3:11], items[11:]])
    assert len(parts) == 20
    for start, stop in ((0, 3), (2, 5), (0, 20), (10, 12), (19, 20)):
        assert np.array_equal(parts.slice(start, stop), items[start:stop])


def test_rows_that_are_not_finite_are_an_error() -> None:
    class Broken(torch.nn.Module):  # type: ignore[misc]
        def forward(self, items: Any) -> Any:
            return items.float().mean(dim=(1, 2)) / 0

    model = RowModel(Broken(), torch.device("cpu"), 3, compiled=False)
    with pytest.raises(ModelError, match="not finite of 5 of 5 images"):
        RowEngine(model, 2).run(Items([made(5)]))
