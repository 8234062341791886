"""Stages that tell where they ran. A module of its own, so that workers can import them."""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from gristmill import DocumentBatch, ProcessingStage, Resources, Task
from gristmill.stages.core import NodeInfo, WorkerMetadata


@dataclass
class Trace(Task[list[Any]]):
    """The history of a task."""

    data: list[Any] = field(default_factory=list)

    @property
    def num_items(self) -> int:
        return 1


def node() -> str:
    import ray

    return str(ray.get_runtime_context().get_node_id())


class Noted(ProcessingStage[Trace, Trace]):
    """Notes its name and the node."""

    def __init__(self, name: str, resources: Resources, seconds: float = 0.0, workers: int | None = None) -> None:
        self.name = name
        self.resources = resources
        self.seconds = seconds
        self.workers = workers
        self.worker: WorkerMetadata | None = None

    def inputs(self) -> tuple[list[str], list[str]]:
        return [], []

    def outputs(self) -> tuple[list[str], list[str]]:
        return [], []

    def num_workers(self) -> int | None:
        return self.workers

    def setup(self, worker: WorkerMetadata | None = None) -> None:
        self.worker = worker

    def process(self, task: Trace) -> Trace:
        time.sleep(self.seconds)
        task.data.append((self.name, node(), os.environ.get("CUDA_VISIBLE_DEVICES", "")))
        return task


class OncePerNode(Noted):
    """Notes in a folder on which nodes it was prepared, and where it has worked."""

    def __init__(self, folder: str, seconds: float = 0.0) -> None:
        super().__init__("once", Resources(cpus=0.5), seconds)
        self.folder = folder

    def setup_on_node(self, info: NodeInfo | None = None, worker: WorkerMetadata | None = None) -> None:
        with open(os.path.join(self.folder, node()), "a") as file:
            file.write("x")

    def process(self, task: Trace) -> Trace:
        done = super().process(task)
        Path(self.folder, "used", node()).touch()
        return done


class Fatal(Noted):
    """Brings its process down on tasks of a given id."""

    def __init__(self, poison: str) -> None:
        super().__init__("fatal", Resources(cpus=0.5))
        self.poison = poison

    def process(self, task: Trace) -> Trace:
        if task.task_id == self.poison:
            ctypes.string_at(0)
        return super().process(task)


class SlowKeep(ProcessingStage[DocumentBatch, DocumentBatch]):
    """Drops some documents, slowly, in workers of its own, so that batches wait in the object store."""

    name = "slow_keep"
    resources = Resources(cpus=0.5)

    def __init__(self, seconds: float, folder: str = "") -> None:
        self.seconds = seconds
        self.folder = folder

    def inputs(self) -> tuple[list[str], list[str]]:
        return ["data"], ["text"]

    def outputs(self) -> tuple[list[str], list[str]]:
        return ["data"], ["text"]

    def num_workers(self) -> int | None:
        return 3

    def process(self, task: DocumentBatch) -> DocumentBatch:
        time.sleep(self.seconds)
        if self.folder:
            with open(os.path.join(self.folder, node()), "a") as file:
                file.write("x")
        return task.keep(["mill mill" not in text for text in task.to_pandas()["text"]], reason="mills")


class OneBuffer(Noted):
    """Makes several large tasks in one and the same buffer."""

    def __init__(self) -> None:
        super().__init__("one_buffer", Resources(cpus=0.5))

    def process(self, task: Trace) -> Iterator[Trace]:  # type: ignore[override]
        buffer = np.zeros(100_000, np.uint8)
        for i in range(5):
            buffer[:] = i
            yield Trace(data=[buffer])


class Sum(Noted):
    """Adds up what is in a buffer, in a worker of its own."""

    def __init__(self) -> None:
        super().__init__("sum", Resources(cpus=0.5), workers=1)

    def process(self, task: Trace) -> Trace:
        return Trace(data=[int(task.data[0].sum())])
