"""The final tasks of a run, kept as bytes until the caller wants them."""

from __future__ import annotations

import re
from typing import Any

from gristmill.backends.engine.payload import unpack
from gristmill.tasks import Task

AUTO_BYTES = 64 << 20


class KeptOutputs:
    """Keeps final tasks: all if asked to, by default while they are small, or none."""

    def __init__(self, keep: bool | None, from_initial_tasks: bool) -> None:
        self._limit = AUTO_BYTES if keep is None else None
        self.wanted = from_initial_tasks if keep is None else keep
        self.reason = ""
        if not self.wanted:
            self.reason = "the run had no initial_tasks; keep_outputs=True keeps them"
        if keep is False:
            self.reason = "keep_outputs is False"
        self._bytes = 0
        self._tasks: list[tuple[str, bytes | bytearray]] = []

    def add(self, label: str, payload: bytes | bytearray) -> None:
        self._tasks.append((label, payload))
        self._bytes += len(payload) + 256
        if self._limit is not None and self._bytes > self._limit:
            self.wanted = False
            self._tasks.clear()
            self.reason = f"they are larger than {self._limit >> 20} MB; keep_outputs=True keeps them all the same"

    def tasks(self) -> list[Task[Any]] | None:
        """In the order of their ids, or None if they were not kept."""
        if not self.wanted:
            return None
        self._tasks.sort(key=lambda kept: _order(kept[0]))
        loaded = []
        for label, payload in self._tasks:
            task: Task[Any] = unpack(payload)
            task.task_id = label
            loaded.append(task)
        return loaded


def _order(label: str) -> tuple[tuple[bool, int], ...]:
    """Ids in the order of the source: ``2`` before ``10``, ``2.1`` before ``2.10``, ``2[0:5]`` before ``2[5:10]``."""
    return tuple((start != "", int(number or start)) for start, number in _PARTS.findall(label))


_PARTS = re.compile(r"\[(?P<start>\d+):\d+\]|(?P<number>\d+)")
