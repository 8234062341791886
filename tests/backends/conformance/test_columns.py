"""A column that a user's stage drops is gone on every executor."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.backends.conformance.executors import Kind

from gristmill.pipeline import Pipeline
from gristmill.stages.core import ProcessingStage
from gristmill.stages.text.filters import ScoreFilter, WordCountFilter
from gristmill.stages.text.io import JsonlReader, JsonlWriter
from gristmill.tasks import DocumentBatch


class DropEmail(ProcessingStage[DocumentBatch, DocumentBatch]):
    def process(self, task: DocumentBatch) -> DocumentBatch:
        task.data = task.data.drop_columns(["email"])
        return task


@pytest.mark.filterwarnings("ignore::gristmill.backends.capabilities.LimitedExecutor")
@pytest.mark.timeout(300)
def test_a_dropped_column_is_not_written(kind: Kind, tmp_path: Path) -> None:
    lines = [json.dumps({"email": f"{n}@b.c", "text": "word " * (n % 5), "n": [n]}) + "\n" for n in range(60)]
    (tmp_path / "in.jsonl").write_text("".join(lines))
    stages = [JsonlReader(str(tmp_path / "in.jsonl"), blocksize=700), DropEmail(), ScoreFilter(WordCountFilter(2))]
    Pipeline("drop", stages=[*stages, JsonlWriter(str(tmp_path / "out"))]).run(kind.make())
    written = b"".join(path.read_bytes() for path in sorted((tmp_path / "out").glob("part-*")))
    excluded = b"".join(path.read_bytes() for path in sorted((tmp_path / "out" / "excluded").glob("*")))
    kept = [json.dumps({"text": "word " * (n % 5), "n": [n]}) + "\n" for n in range(60) if n % 5 >= 2]
    assert written.decode() == "".join(kept)
    assert excluded.count(b"\n") == 24 and b"@" not in excluded
