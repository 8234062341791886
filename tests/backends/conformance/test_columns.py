"""A column that a user's stage drops is gone on every executor."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from tests.backends.conformance.executors import Kind

from gristmill.pipeline import Pipeline, one_schema
from gristmill.stages.core import ProcessingStage
from gristmill.stages.text.filters import ScoreFilter, WordCountFilter
from gristmill.stages.text.io import JsonlReader, JsonlWriter, ParquetWriter
from gristmill.tasks import DocumentBatch


class DropEmail(ProcessingStage[DocumentBatch, DocumentBatch]):
    def process(self, task: DocumentBatch) -> DocumentBatch:
        task.data = task.data.drop_columns(["email"])
        return task


@pytest.mark.filterwarnings("ignore::gristmill.backends.capabilities.LimitedExecutor")
@pytest.mark.timeout(600)
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


@pytest.mark.filterwarnings("ignore::gristmill.backends.capabilities.LimitedExecutor")
@pytest.mark.timeout(300)
def test_all_parts_of_parquet_have_one_schema(kind: Kind, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(one_schema, "HERE_BYTES", 0)  # parts are written again by workers
    for n in range(6):
        ident = n if n % 2 else f"b{n}"
        (tmp_path / f"{n}.jsonl").write_text(json.dumps({"id": ident, "text": "word", "meta": {"n": n}}) + "\n")
    stages = [JsonlReader(str(tmp_path / "*.jsonl")), ParquetWriter(str(tmp_path / "out"))]
    Pipeline("schema", stages=stages).run(kind.make())
    parts = sorted((tmp_path / "out").glob("part-*"))
    assert len({pq.read_schema(path).to_string() for path in parts}) == 1 and len(parts) == 6
    table = pq.ParquetDataset([str(path) for path in parts]).read()
    assert table["id"].to_pylist() == ["b0", "1", "b2", "3", "b4", "5"]
    assert table["meta"].to_pylist() == [{"n": n} for n in range(6)]
