from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gristmill.stages.protocols import Linked
from gristmill.stages.text.io import JsonlReader
from gristmill.tasks import DocumentBatch


class Work:
    """A folder to read from, and the results stage by stage, without an engine."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.source = folder / "in"
        self.source.mkdir()

    def put(self, name: str, data: bytes) -> str:
        path = self.source / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        return str(path)

    def batches(self, reader: Any, *behind: Any) -> list[DocumentBatch]:
        """All batches, with ids as the engine gives them."""
        blocks = reader.source()
        found = []
        linked = reader.linked([], behind)
        for block in blocks:
            result = linked.process(block)
            several = not isinstance(result, DocumentBatch)
            for n, batch in enumerate(result if several else [result]):
                batch.task_id = f"{block.task_id}.{n}" if several else block.task_id
                found.append(batch)
        return found

    def through(self, reader: Any, *stages: Any) -> bytes:
        """The output of the last of the stages, in the order of names."""
        for batch in self.batches(reader, *stages):
            task: Any = batch
            for i, stage in enumerate(stages):
                ident = task.task_id
                if isinstance(stage, Linked):
                    stage = stage.linked([reader, *stages[:i]], stages[i + 1 :])
                task = stage.process(task)
                task.task_id = ident
        folder = Path(stages[-1].path)
        return b"".join(path.read_bytes() for path in sorted(folder.iterdir()))

    def read(self, data: bytes, name: str = "a.jsonl", **kwargs: Any) -> list[DocumentBatch]:
        return self.batches(JsonlReader(self.put(name, data), **kwargs))


@pytest.fixture
def work(tmp_path: Path) -> Work:
    return Work(tmp_path)
