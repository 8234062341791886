"""Documents with equal keys, found within a memory limit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from io import BytesIO
from typing import Any

import numpy as np

from gristmill.kernels.signatures import MOST_KEYS, first_equal
from gristmill.stages.core import ProcessingStage
from gristmill.stages.deduplication.parts import Parts
from gristmill.storage import Folder
from gristmill.tasks import Task
from gristmill.tasks.arrow import numbers_of

Array = np.ndarray[Any, Any]

BYTES_EACH = 72
"""Of memory, for each document whose keys are compared at a time: measured, `first_equal` included."""


@dataclass
class MatchTask(Task[str]):
    """The keys to compare: ``columns`` are one key together; ``turn`` is one of several ``passes`` over them."""

    data: str = ""
    """The file of the pairs."""
    columns: list[str] = field(default_factory=list)
    turn: int = 0
    passes: int = 1


class Match(ProcessingStage[MatchTask, MatchTask]):
    """Writes pairs of documents with equal keys: each document with the first one that has its key."""

    def __init__(self, parts: Parts) -> None:
        self.name = "match"
        self.parts = parts

    def preload(self) -> None:
        first_equal(np.zeros(0, np.uint64))

    def process(self, task: MatchTask) -> MatchTask:
        keys, numbers = self._keys(task)
        first = first_equal(keys)
        pairs = np.flatnonzero(first != np.arange(len(first)))
        found = np.stack([first[pairs], pairs])
        if numbers is not None:
            found = numbers[found]
        write_array(self.parts.folder, task.data, found.astype(np.int64, copy=False))
        return MatchTask(task.data, task_id=task.task_id)

    def _keys(self, task: MatchTask) -> tuple[Array, Array | None]:
        """Return the keys of one turn, and the numbers of their documents; None for all documents.

        In one of several turns each part gives a key once: equal documents within a part are paired and written at
        once, so that a key that most documents have takes no more memory than others.
        """
        parts = self.parts
        if task.passes == 1:
            keys = np.empty((parts.documents, len(task.columns)), np.uint64)
            for part in range(len(parts)):
                table = parts.table(part, task.columns)
                for n in range(len(task.columns)):
                    keys[parts.starts[part] : parts.starts[part + 1], n] = numbers_of(table.column(n))
            return _plain(keys), None
        chosen: list[Array] = []
        numbers: list[Array] = []
        for part in range(len(parts)):
            table = parts.table(part, task.columns)
            leading = numbers_of(table.column(0))
            # by the low half: keys of equal documents are in the same turn, and all turns are about the same size
            turns = ((leading & np.uint64(0xFFFFFFFF)) * np.uint64(task.passes)) >> np.uint64(32)
            mine = np.flatnonzero(turns == task.turn)
            keys = np.stack([numbers_of(table.column(n))[mine] for n in range(len(task.columns))], axis=1)
            first = first_equal(_plain(keys))
            alone = first == np.arange(len(first))
            mine += parts.starts[part]
            if not alone.all():
                pairs = np.stack([mine[first[~alone]], mine[~alone]])
                write_array(parts.folder, f"{task.data}.{part:06d}", pairs)
            chosen.append(keys[alone])
            numbers.append(mine[alone])
        return _plain(np.concatenate(chosen)), np.concatenate(numbers)


def _plain(keys: Array) -> Array:
    return keys[:, 0].copy() if keys.shape[1] == 1 else np.ascontiguousarray(keys)


def tasks_for(name: str, columns: Sequence[str], documents: int, memory: int) -> list[MatchTask]:
    """Return the tasks that compare one kind of key within some bytes of memory."""
    by_memory = -(-documents * (BYTES_EACH + 8 * len(columns)) // max(memory, 1))
    passes = max(1, by_memory, -(-documents // (MOST_KEYS // 2)))
    # a run that resumes with another memory limit takes other turns
    files = [f"{name}-{turn:04d}-of-{passes:04d}.pairs" for turn in range(passes)]
    return [MatchTask(file, columns=list(columns), turn=turn, passes=passes) for turn, file in enumerate(files)]


def write_array(folder: Folder, name: str, array: Array) -> None:
    buffer = BytesIO()
    np.save(buffer, array)
    folder.write(name, buffer.getbuffer())


def read_array(folder: Folder, name: str) -> Array:
    """Return an array; from a disk it is mapped, not read."""
    if folder.is_local:
        found: Array = np.load(folder.path(name), mmap_mode="r")
        return found
    return np.load(BytesIO(folder.read(name)))  # type: ignore[no-any-return]  # an array
