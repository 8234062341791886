"""What is said of an input before it is read: how many documents, how much text, whatever kind of files they are in."""

from __future__ import annotations

import bz2
import gzip
import itertools
import json
import lzma
import random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gristmill.pipeline.forecast import forecast, look
from gristmill.stages.deduplication.exact import ExactDeduplication, LineDeduplication
from gristmill.stages.deduplication.fuzzy import FuzzyDeduplication
from gristmill.stages.text.io import JsonlReader, ParquetReader

ROWS = 12_000
GIB = 1 << 30


@pytest.fixture(scope="module")
def documents():
    rng = random.Random(7)
    words = ["".join(rng.choices("abcdefghij", k=rng.randrange(2, 9))) for _ in range(2000)]
    return [{"n": n, "text": " ".join(rng.choices(words, k=rng.randrange(40, 160)))} for n in range(ROWS)]


def zstd(data):
    return pa.compress(data, codec="zstd", asbytes=True)


PACKED = {"jsonl": bytes, "jsonl.gz": gzip.compress, "jsonl.bz2": bz2.compress, "jsonl.xz": lzma.compress,
          "jsonl.zst": zstd}  # fmt: skip


def put(folder, documents, kind):
    """Four files, the first of them with half of the documents."""
    folder.mkdir()
    edges = [0, ROWS // 2, ROWS // 2 + 2000, ROWS // 2 + 4000, ROWS]
    for n, (begin, end) in enumerate(itertools.pairwise(edges)):
        some = documents[begin:end]
        if kind == "parquet":
            pq.write_table(pa.Table.from_pylist(some), folder / f"{n}.parquet", row_group_size=1500)
        else:
            lines = "".join(json.dumps(document) + "\n" for document in some)
            (folder / f"{n}.{kind}").write_bytes(PACKED[kind](lines.encode()))


def looked_at(reader, barrier=None):
    return look(barrier or ExactDeduplication(), reader, reader.source())


@pytest.mark.parametrize("options", [{}, {"files_per_partition": 2}, {"blocksize": "1MB"}])
@pytest.mark.parametrize("kind", [*PACKED, "parquet"])
def test_documents_and_their_text_are_estimated_in_all_kinds_of_files(tmp_path, documents, kind, options):
    put(tmp_path / "in", documents, kind)
    reader = (ParquetReader if kind == "parquet" else JsonlReader)(str(tmp_path / "in"), **options)
    looked = looked_at(reader)
    text = sum(len(document["text"]) for document in documents)
    assert looked.documents == pytest.approx(ROWS, rel=0.2)
    assert looked.text_bytes == pytest.approx(text, rel=0.2)
    assert 0 < looked.seconds_each < 0.01


def test_rows_of_parquet_files_are_counted_where_these_are_not_alike(tmp_path, documents):
    (tmp_path / "in").mkdir()
    for n in range(40):
        some = documents[:20] if n % 2 else documents[: 20 * n]
        pq.write_table(pa.Table.from_pylist(some), tmp_path / f"in/{n:02d}.parquet")
    looked = looked_at(ParquetReader(str(tmp_path / "in")))
    assert looked.documents == pytest.approx(sum(20 if n % 2 else 20 * n for n in range(40)), rel=0.3)


def test_nothing_is_said_of_what_cannot_be_read_or_lacks_the_field(tmp_path, documents):
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad/a.jsonl.gz").write_bytes(gzip.compress(b"x")[:6])
    (tmp_path / "bad/b.parquet").write_bytes(b"PAR1 nothing PAR1")
    assert looked_at(JsonlReader(str(tmp_path / "bad"))) is None
    assert looked_at(ParquetReader(str(tmp_path / "bad"))) is None
    put(tmp_path / "in", documents, "jsonl")
    assert looked_at(JsonlReader(str(tmp_path / "in")), ExactDeduplication("no such field")) is None


def test_a_stream_that_breaks_off_counts_as_far_as_it_goes(tmp_path, documents):
    put(tmp_path / "in", documents, "jsonl.gz")
    for path in (tmp_path / "in").iterdir():
        path.write_bytes(path.read_bytes()[:-100])
    assert looked_at(JsonlReader(str(tmp_path / "in"))).documents == pytest.approx(ROWS, rel=0.2)


def test_memory_grows_with_documents_and_stays_below_a_limit_that_leaves_room(tmp_path, documents):
    put(tmp_path / "in", documents, "jsonl")
    looked = looked_at(JsonlReader(str(tmp_path / "in")))
    for stage in (ExactDeduplication(), FuzzyDeduplication(), LineDeduplication()):
        sizes = []
        for times in (1, 100, 10_000):
            more = type(looked)(
                looked.documents * times, looked.text_bytes * times, looked.seconds_each, looked.keys * times
            )
            sizes.append(stage.forecast(more, 8 * GIB, 2, stored=False).memory_bytes)
        assert sizes == sorted(sizes) and sizes[0] < sizes[2], stage
        assert sizes[1] < 8 * GIB, stage
        lines = forecast(stage, looked, 64 << 20, 2, stored=False)
        assert "the estimate is above memory_limit" in lines[-1]
