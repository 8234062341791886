"""Removal of semantic duplicates from the documents."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any

from gristmill import fast_json
from gristmill.lazy import np
from gristmill.stages.core import ProcessingStage
from gristmill.stages.deduplication.semantic.store import EmbeddingStore
from gristmill.stages.registry import builtin_internal
from gristmill.storage import Folder
from gristmill.tasks import DocumentBatch
from gristmill.tasks.document import ID

INDEX = "removed.json"
REASON = "semantic duplicate"
RECORD = [("position", "<i8"), ("similarity", "<f8")]
HELD = 1 << 18
"""Removals in memory before they are written to files."""


def split_source(source: str) -> tuple[str, int]:
    """Return the file and the position of a document."""
    path, _, position = source.rpartition("#")
    return path, int(position)


def write_removed(store: EmbeddingStore, found: Iterable[tuple[Sequence[str], Sequence[float]]]) -> int:
    """Write the removals by file, from pieces of (sources, similarities); return their number.

    Some pieces and the removals of one file are in memory at a time: they are sorted on disk.
    """
    scratch = store.file("removing")
    shutil.rmtree(scratch, ignore_errors=True)
    os.makedirs(scratch)
    unsorted: dict[str, str] = {}
    held: dict[str, list[tuple[int, float]]] = {}

    def write_held() -> None:
        for path, removals in held.items():
            with open(unsorted.setdefault(path, os.path.join(scratch, str(len(unsorted)))), "ab") as file:
                file.write(np.array(removals, dtype=RECORD).tobytes())
        held.clear()

    total = pending = 0
    for sources, similarities in found:
        for source, similarity in zip(sources, similarities, strict=True):
            path, position = split_source(source)
            held.setdefault(path, []).append((position, similarity))
        total += len(sources)
        pending += len(sources)
        if pending >= HELD:
            write_held()
            pending = 0
    write_held()
    index: dict[str, str] = {}
    for number, path in enumerate(sorted(unsorted)):
        index[path] = f"removed-{number:06d}.npy"
        removed = np.fromfile(unsorted[path], RECORD)
        removed.sort(order="position")
        store.save(index[path], removed)
        os.unlink(unsorted[path])
    os.rmdir(scratch)
    store.write(store.file(INDEX), fast_json.dumps(index))
    return total


@builtin_internal
class RemoveSemanticDuplicates(ProcessingStage[DocumentBatch, DocumentBatch]):
    """Drops duplicates, by their places in the input; other documents pass.

    ``duplicates`` is the folder of their records, ``cache`` the folder of `write_removed`.
    """

    indifferent = ("cache",)

    def __init__(self, duplicates: str, cache: str, storage_options: dict[str, Any] | None = None) -> None:
        self.records = Folder(duplicates, storage_options)
        self.store = EmbeddingStore(cache)
        self._last: tuple[str, np.ndarray] | None = None

    def inputs(self) -> tuple[list[str], list[str]]:
        return ["data"], []

    def outputs(self) -> tuple[list[str], list[str]]:
        return ["data"], []

    def process(self, task: DocumentBatch) -> DocumentBatch:
        sources = [split_source(source) for source in task.to_pyarrow().column(ID).to_pylist()]
        keep = np.ones(len(sources), dtype=bool)
        similarity = np.zeros(len(sources))
        positions = np.array([position for _, position in sources], dtype=np.int64)
        files = np.array([path for path, _ in sources], dtype=object)
        for path in dict.fromkeys(files):
            removed = self._removed(path)
            if not len(removed):
                continue
            lines = np.flatnonzero(files == path)
            at = np.searchsorted(removed["position"], positions[lines]).clip(max=len(removed) - 1)
            hit = removed["position"][at] == positions[lines]
            keep[lines[hit]] = False
            similarity[lines[hit]] = removed["similarity"][at[hit]]
        return task.keep(keep, reason=REASON, scores=similarity[~keep].tolist())

    def _removed(self, path: str) -> np.ndarray:
        """Return the removals of a file; those of the last file are cached."""
        if self._last is None or self._last[0] != path:
            name = self._index.get(path)
            self._last = path, self.store.load(name) if name else np.zeros(0, dtype=RECORD)
        return self._last[1]

    @cached_property
    def _index(self) -> dict[str, str]:
        with open(self.store.file(INDEX), "rb") as file:
            index: dict[str, str] = fast_json.loads(file.read())
            return index
