"""Stages that leave notes in a folder, since what they do happens in other processes."""

from __future__ import annotations

import asyncio
import os
import time
import uuid
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gristmill.stages.core import ProcessingStage
from gristmill.stages.resources import Resources
from gristmill.tasks import DocumentBatch, Task

LIGHT = Resources(cpus=0.5)


@dataclass
class Number(Task[int]):
    data: int = 0
    trail: list[str] = field(default_factory=list)


def note(folder: str, kind: str, text: str = "") -> None:
    Path(folder, f"{kind}-{uuid.uuid4().hex}").write_text(text)


def notes(folder: Path, kind: str) -> list[str]:
    return [path.read_text() for path in folder.glob(f"{kind}-*")]


class Split(ProcessingStage[Number, Number]):
    """One to many: number n becomes n numbers, so 0 becomes none."""

    resources = LIGHT
    fan_out = True

    def process(self, task: Number) -> list[Number]:
        return [Number(data=100 * task.data + i, trail=[task.task_id]) for i in range(task.data)]


class Stream(ProcessingStage[Number, Number]):
    """One to many, by a generator, of what is divisible by five; one to one otherwise."""

    resources = LIGHT

    def process(self, task: Number) -> Iterator[Number]:
        for i in range(3 if task.data % 5 == 0 else 1):
            yield Number(data=task.data, trail=[*task.trail, f"{task.task_id}/{i}"])


class Odd(ProcessingStage[Number, Number]):
    """Drops even numbers."""

    resources = LIGHT

    def process(self, task: Number) -> Number | None:
        return task if task.data % 2 else None


class Batched(ProcessingStage[Number, Number]):
    """Notes its batches, its setups and teardowns, and what it was given to work with."""

    resources = LIGHT
    batch_size = 4

    def __init__(self, folder: Path) -> None:
        self.folder = str(folder)

    def setup_on_node(self, node_info: Any) -> None:
        note(self.folder, "node", node_info.node_id)

    def setup(self, worker_metadata: Any) -> None:
        self.ready = True
        note(self.folder, "setup", f"{os.getpid()} {worker_metadata.gpu_share:g}")

    def teardown(self) -> None:
        note(self.folder, "teardown", str(os.getpid()))

    def process(self, task: Number) -> Number:
        raise AssertionError("tasks come in batches")

    def process_batch(self, tasks: list[Number]) -> list[Any]:
        assert self.ready
        note(self.folder, "batch", str(len(tasks)))
        return [Number(data=-task.data, trail=task.trail) for task in tasks]


class SlowStart(ProcessingStage[Number, Number]):
    """Takes its time to set up, as a model does, in six workers at once."""

    resources = LIGHT

    def num_workers(self) -> int:
        return 6

    def setup(self, worker_metadata: Any) -> None:
        time.sleep(2.0)

    def process(self, task: Number) -> Number:
        return task


class Fragile(ProcessingStage[Task[Any], Task[Any]]):
    """Fails on 3, the first time on 5, and on documents that hold poison."""

    resources = LIGHT

    def __init__(self, folder: Path) -> None:
        self.folder = str(folder)

    def process(self, task: Task[Any]) -> Task[Any]:
        if isinstance(task, DocumentBatch) and "poison" in task.data["text"].to_pylist():
            raise ValueError("poisoned")
        if task.data == 3:
            note(self.folder, "three")
            raise ValueError("three")
        if task.data == 5:
            first = not notes(Path(self.folder), "five")
            note(self.folder, "five")
            if first:
                raise OSError("not now")
        return task


class FragileBatch(Fragile):
    """The same, four tasks at a time."""

    batch_size = 4

    def process_batch(self, tasks: list[Task[Any]]) -> list[Any]:
        return [self.process(task) for task in tasks]


class Deadly(ProcessingStage[Number, Number]):
    """Ends its process on 7."""

    resources = LIGHT

    def process(self, task: Number) -> Number:
        if task.data == 7:
            os._exit(3)
        return task


class DeadlyModel(Deadly):
    """The same, with a setup."""

    def setup(self) -> None:
        self.model = object()


class CannotSetUp(ProcessingStage[Number, Number]):
    resources = LIGHT

    def setup(self) -> None:
        raise OSError("no weights")

    def process(self, task: Number) -> Number:
        return task


class Shout(ProcessingStage[DocumentBatch, DocumentBatch]):
    """A user's stage between a reader and a writer: drops what is short; fails while the flag exists."""

    resources = Resources()

    indifferent = ("flag",)  # the file is a switch of the test, not data

    def __init__(self, flag: Path) -> None:
        self.flag = str(flag)

    def process(self, task: DocumentBatch) -> DocumentBatch:
        frame = task.to_pandas()
        if frame.text.str.contains("poison").any() and os.path.exists(self.flag):
            raise ValueError("poisoned")
        task.data = frame[frame.text.str.len() > 30].assign(text=frame.text.str.upper())
        return task


class Ask(ProcessingStage[Number, Number]):
    """Asynchronous: one to one, after a time that depends on the number, and misbehaves on one."""

    resources = LIGHT
    max_in_flight = 16

    def __init__(self, seconds: float = 0.01, how: str = "", culprit: int = 7) -> None:
        self.seconds = seconds
        self.how = how
        self.culprit = culprit

    async def process(self, task: Number) -> Number | None:
        if self.how and task.data == self.culprit:
            await getattr(self, self.how)()
        await asyncio.sleep(self.seconds * (task.data * 7919 % 7))
        return None if task.data % 10 == 3 else task

    async def fail(self) -> None:
        raise ValueError("seven")

    async def hang(self) -> None:
        await asyncio.sleep(1000)

    async def swallow(self) -> None:
        while True:
            try:
                await asyncio.sleep(1000)
            except asyncio.CancelledError:
                continue

    async def block(self) -> None:
        time.sleep(1000)

    async def crash(self) -> None:
        await asyncio.sleep(0.05)
        os._exit(3)


class Pour(ProcessingStage[Number, Number]):
    """An asynchronous generator: number n becomes as many numbers as its last digit, each with a large trail."""

    resources = LIGHT
    max_in_flight = 4

    async def process(self, task: Number) -> AsyncIterator[Number]:
        for i in range(task.data % 10):
            await asyncio.sleep(0.002)
            yield Number(data=task.data, trail=["x" * 200_000, f"{task.task_id}/{i}"])


class Trim(ProcessingStage[Number, Number]):
    resources = LIGHT

    def process(self, task: Number) -> Number:
        assert len(task.trail[0]) == 200_000
        return Number(data=task.data, trail=task.trail[1:])


class Review(ProcessingStage[DocumentBatch, DocumentBatch]):
    """A user's asynchronous stage between a reader and a writer: drops what is short, with a reason."""

    max_in_flight = 8

    async def process(self, task: DocumentBatch) -> DocumentBatch:
        await asyncio.sleep(0.001 * (task.num_items * 31 % 17))
        frame = task.to_pandas()
        task = task.keep((frame.text.str.len() > 30).to_numpy(), "too short")
        await asyncio.sleep(0.001)
        frame = task.to_pandas()
        task.data = frame.assign(text=frame.text.str.upper())
        return task
