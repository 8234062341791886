"""The payload of each live task: inline with the driver, or in Ray's object store."""

from __future__ import annotations

from typing import Any

import numpy as np

from gristmill.backends.engine.protocol import TaskInput, TaskOutput
from gristmill.backends.engine.reports import PayloadStore
from gristmill.backends.ray.worker import to_bytes
from gristmill.backends.ray.workers import RayWorkerHandle


class Bulk:
    """An object of the store, with payloads of one or several tasks. It is dropped when none of them is live."""

    __slots__ = ("node", "ref", "tasks")

    def __init__(self, ref: Any, node: int) -> None:
        self.ref = ref
        self.node = node
        """The node that made it; -1 for the driver, whose data can only be lost with the run."""
        self.tasks: dict[int, int] = {}
        """Live tasks, each with the position of its payload."""

    def tasks_at(self, index: int) -> list[int]:
        """The live tasks whose payload is at this position."""
        return [task for task, at in self.tasks.items() if at == index]


class RayStore(PayloadStore):
    """Holds references, not data. Objects belong to the driver, so they outlive the worker that made them."""

    def __init__(self, ray: Any, inline: int) -> None:
        """The source of a payload is its `Bulk`, the offset its position."""
        super().__init__(inline)
        self._ray = ray
        self._on_node: dict[int, set[Bulk]] = {}

    def put_large(self, task: int, label: str, parts: list[Any], size: int) -> None:
        arrays = [np.frombuffer(part, np.uint8) for part in parts if len(part)]
        self._note(task, label, size, Bulk(self._ray.put([arrays]), -1), 0)

    def add(self, task: int, w: RayWorkerHandle, output: TaskOutput) -> bool:
        if output.payload is not None:
            self.refs[task] = TaskInput(task, output.label, output.payload, None, 0, output.length)
            return False
        if w.bulk is None:
            w.bulk = Bulk(w.bulk_ref, w.node)
            self._on_node.setdefault(w.node, set()).add(w.bulk)
        self._note(task, output.label, output.length, w.bulk, output.offset)
        return True

    def _note(self, task: int, label: str, length: int, bulk: Bulk, position: int) -> None:
        bulk.tasks[task] = position
        self.refs[task] = TaskInput(task, label, None, bulk, position, length)

    def take(self, w: RayWorkerHandle, offset: int, length: int, wanted: bool) -> bytearray | None:
        return to_bytes(w.payloads[offset]) if wanted and w.payloads is not None else None

    def read(self, ref: TaskInput) -> bytearray:
        return to_bytes(self._ray.get(ref.source.ref)[ref.offset])

    def release(self, task: int) -> None:
        bulk = self.refs.pop(task).source
        if bulk is None:
            return
        bulk.tasks.pop(task, None)
        if not bulk.tasks:
            self._on_node.get(bulk.node, set()).discard(bulk)

    def node_lost(self, node: int) -> list[int]:
        """The live tasks whose data was on a node."""
        return sorted(task for bulk in self._on_node.pop(node, ()) for task in bulk.tasks)

    def is_lost(self, bulk: Bulk) -> bool:
        """Whether an object was on a node that is gone."""
        return bulk.node >= 0 and bulk not in self._on_node.get(bulk.node, ())

    def input_for(self, w: RayWorkerHandle, data: int) -> TaskInput:
        return self.refs[data]
