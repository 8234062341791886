"""A reader reports progress while it reads a large block, and reads the same as without these reports."""

from __future__ import annotations

import json
import random

import pyarrow as pa
import pyarrow.parquet as pq

from gristmill.stages.text.io import DocumentReader, JsonlReader, ParquetReader
from gristmill.stages.text.io.reader import lines
from gristmill.tasks import DocumentBatch


def read_with_notes(reader) -> tuple[list[DocumentBatch], list[int]]:
    notes: list[int] = []
    reader.report_reading_to(notes.append)
    return [reader.process(block) for block in reader.source()], notes


def test_a_range_of_many_lines_is_reported_in_pieces_and_read_the_same(tmp_path, monkeypatch):
    seed = random.SystemRandom().randrange(1 << 32)
    print("seed", seed)
    rng = random.Random(seed)
    corpus = tmp_path / "in.jsonl"
    ends = [rng.choice(["\n", "\r\n", "\n\n"]) for _ in range(300)]
    rows = [json.dumps({"id": n, "text": "x" * rng.randrange(400)}) for n in range(300)]
    corpus.write_bytes("".join(row + end for row, end in zip(rows, ends, strict=True)).encode())
    blocksize = rng.choice([1 << 20, 10_000, 3_000])
    whole = [reader.process(b) for reader in [JsonlReader(str(corpus), blocksize=blocksize)] for b in reader.source()]
    monkeypatch.setattr(lines, "PIECE_BYTES", rng.randrange(100, 2_000))
    pieces, notes = read_with_notes(JsonlReader(str(corpus), blocksize=blocksize))
    assert [b.data.to_pylist() for b in pieces] == [b.data.to_pylist() for b in whole]
    assert [b.take_account() for b in pieces] == [b.take_account() for b in whole]
    assert len(notes) > len(pieces) and max(notes) <= 300


def test_each_row_group_of_a_batch_is_reported(tmp_path):
    pq.write_table(pa.table({"text": [f"text {n}" for n in range(100)]}), tmp_path / "in.parquet", row_group_size=10)
    for kind in (ParquetReader, DocumentReader):
        batches, notes = read_with_notes(kind(str(tmp_path / "in.parquet")))
        assert notes == list(range(10, 101, 10)) and sum(b.num_items for b in batches) == 100
