"""Files without documents, and stages that name columns."""

from __future__ import annotations

import json

import pyarrow.dataset
import pytest
from tests.stages.deduplication.corpora import execute

from gristmill.stages.function_definitions import processing_stage
from gristmill.stages.text.io import DocumentReader, JsonlReader, ParquetWriter
from gristmill.tasks import DocumentBatch


@processing_stage(name="without_email")
def without_email(batch: DocumentBatch) -> DocumentBatch:
    batch.data = batch.data.drop_columns(["email"])
    return batch


@pytest.mark.parametrize("kind", [JsonlReader, DocumentReader])
@pytest.mark.parametrize("empty", ["a", "c"])
def test_a_stage_finds_its_columns_in_a_batch_without_documents(tmp_path, kind, empty):
    (tmp_path / f"{empty}.jsonl").touch()
    (tmp_path / "b.jsonl").write_text(json.dumps({"id": 1, "text": "a", "email": "x@y.z", "n": {"m": 1}}) + "\n")
    reader = kind(str(tmp_path))
    linked = reader.linked([], [without_email])
    batches = [linked.process(block) for block in reader.source()]
    assert sorted(batch.num_items for batch in batches) == [0, 1]
    assert batches[0].columns == batches[1].columns == ["id", "text", "email", "n"]


def test_an_empty_file_changes_nothing_of_what_is_written(tmp_path):
    for name, lines in (("a", 0), ("b", 3), ("c", 0)):
        rows = [{"id": n, "text": f"text {n}", "email": "x@y.z", "n": {"m": n}} for n in range(lines)]
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    result = execute(JsonlReader(str(tmp_path / "*.jsonl")), without_email, ParquetWriter(str(tmp_path / "out")))
    assert result.ok
    table = pyarrow.dataset.dataset(sorted(map(str, (tmp_path / "out").glob("part-*")))).to_table()
    assert table.to_pylist() == [{"id": n, "text": f"text {n}", "n": {"m": n}} for n in range(3)]
