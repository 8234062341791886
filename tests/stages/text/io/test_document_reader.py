"""Folders with both JSONL and Parquet, read into one stream."""

from __future__ import annotations

import gzip
import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gristmill.backends.local import LocalExecutor
from gristmill.pipeline import Pipeline
from gristmill.stages.deduplication.exact import ExactDeduplication
from gristmill.stages.text.filters import ScoreFilter, WordCountFilter
from gristmill.stages.text.io import DocumentReader, JsonlReader, JsonlWriter, ParquetReader, ParquetWriter
from gristmill.tasks import FileGroupTask

ROWS = {name: [{"text": f"{name} {i} " + "word " * (i % 7), "n": i} for i in range(50)] for name in "abcdef"}


def lines(name: str) -> bytes:
    return b"".join(json.dumps(row).encode() + b"\n" for row in ROWS[name])


@pytest.fixture
def folder(work):
    work.put("a.jsonl", lines("a"))
    work.put("c.jsonl.gz", gzip.compress(lines("c")))
    work.put("d.ndjson", lines("d"))
    work.put("f.jsonl", lines("f"))
    for name, end in (("b", "parquet"), ("e", "pq")):
        pq.write_table(pa.Table.from_pylist(ROWS[name]), work.source / f"{name}.{end}", row_group_size=20)
    return str(work.source)


@pytest.mark.parametrize("cut", [{}, {"blocksize": 700}, {"blocksize": "1MB"}, {"files_per_partition": 2}])
def test_files_come_in_order_whatever_their_format(work, folder, cut, capsys):
    batches = work.batches(DocumentReader(folder, **cut))
    texts = [text for batch in batches for text in batch.data["text"].to_pylist()]
    assert texts == [row["text"] for name in "abcdef" for row in ROWS[name]]
    assert sum(batch.account.read.total() for batch in batches) == 300
    assert capsys.readouterr().err == ""


def test_batches_are_those_of_the_readers_for_each_format(work, folder):
    both = {batch.data["_gristmill_id"][0].as_py(): batch.data for batch in work.batches(DocumentReader(folder))}
    alone = [*work.batches(JsonlReader(folder)), *work.batches(ParquetReader(folder))]
    assert len(both) == len(alone)
    for batch in alone:
        assert both[batch.data["_gristmill_id"][0].as_py()].equals(batch.data)


def test_whole_files_of_both_formats_in_one_task(work, folder):
    paths = [f"{folder}/{name}" for name in ("a.jsonl", "b.parquet", "c.jsonl.gz", "e.pq")]
    batches = list(DocumentReader().process(FileGroupTask(data=paths)))
    assert [batch.num_items for batch in batches] == [50] * 4


@pytest.mark.parametrize("writer", [JsonlWriter, ParquetWriter])
def test_a_run_over_both_formats_finds_duplicates_across_them_and_balances(work, folder, writer):
    pq.write_table(pa.Table.from_pylist(ROWS["a"]), work.source / "g.parquet")
    out = work.folder / "out"
    stages = [
        DocumentReader(folder, blocksize=1000),
        ScoreFilter(WordCountFilter(min_words=4)),
        ExactDeduplication(),
        writer(str(out)),
    ]
    result = Pipeline("p", stages=stages).run(LocalExecutor(config={"view": "off", "num_cpus": 2}))
    whole = result.ledger.total()
    rows = [row for name in "abcdefa" for row in ROWS[name]]
    long = [row for row in rows if len(row["text"].split()) >= 4]
    assert (whole.documents, whole.imbalance()) == (350, "")
    assert whole.kept == len({row["text"] for row in long}) < len(long)
    if writer is JsonlWriter:
        kept = b"".join(path.read_bytes() for path in sorted(out.glob("part-*"))).splitlines()
        assert [json.loads(line) for line in kept] == list({row["text"]: row for row in long}.values())
        assert set(kept) >= {line for line in lines("a").splitlines() if json.loads(line) in long}


def test_a_pipeline_with_it_is_written_as_yaml(work, folder):
    pipeline = Pipeline("p", stages=[DocumentReader(folder, sample=0.5, limit=20), JsonlWriter(str(work.folder / "o"))])
    again = Pipeline.from_yaml(pipeline.to_yaml())
    assert again.to_yaml() == pipeline.to_yaml()
    result = again.run(LocalExecutor(config={"view": "off", "num_cpus": 1}))
    assert result.ledger.total().kept == 20


def test_files_that_are_appended_do_not_change_how_the_first_ones_are_cut(work):
    """The default size of blocks depends on the input: that of earlier runs must stay."""
    out = work.folder / "out"
    line = b'{"text": "%d' + b" word" * 200 + b'"}\n'
    work.put("a.jsonl", b"".join(line % i for i in range(3000)))
    work.put("b.jsonl.gz", gzip.compress(b"".join(line % i for i in range(3000)), 1))

    def run(**how):
        stages = [DocumentReader(str(work.source)), JsonlWriter(str(out))]
        return Pipeline("p", stages=stages).run(LocalExecutor(config={"view": "off", "num_cpus": 2}), **how)

    first = run()
    before = {path.name: path.read_bytes() for path in out.glob("part-*")}
    assert len(before) > 5
    work.put("c.jsonl", b"".join(line % i for i in range(30_000)))
    second = run(append=True)
    assert second.ledger.resumed == len(first.ledger.blocks)
    assert second.ledger.total().kept == 36_000
    assert all((out / name).read_bytes() == data for name, data in before.items())
    next(out.glob("part-000000*")).unlink()
    next(out.glob(f"part-{len(first.ledger.blocks) - 1:06d}*")).unlink()
    run(append=True)  # what is missing is done again, cut as it was
    assert all((out / name).read_bytes() == data for name, data in before.items())
