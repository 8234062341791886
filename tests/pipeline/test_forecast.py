"""Estimates of an input before it is read: documents and text, for all kinds of files."""

from __future__ import annotations

import bz2
import gzip
import itertools
import json
import lzma
import random
from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.stages.deduplication.in_process import InProcess

from gristmill.cli.main import main
from gristmill.pipeline import Pipeline
from gristmill.pipeline.phases.forecast import estimate_input, forecast, forecasts
from gristmill.pipeline.planner import flatten
from gristmill.stages.core import CompositeStage
from gristmill.stages.deduplication.exact import ExactDeduplication, LineDeduplication
from gristmill.stages.deduplication.fuzzy import FuzzyDeduplication
from gristmill.stages.text.filters import ScoreFilter, WordCountFilter
from gristmill.stages.text.io import DocumentReader, JsonlReader, JsonlWriter, ParquetReader

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
    return estimate_input(barrier or ExactDeduplication(), reader, reader.source())


@pytest.mark.parametrize("options", [{}, {"files_per_partition": 2}, {"blocksize": "1MB"}])
@pytest.mark.parametrize("kind", [*PACKED, "parquet"])
def test_documents_and_their_text_are_estimated_in_all_kinds_of_files(tmp_path, documents, kind, options):
    put(tmp_path / "in", documents, kind)
    reader = (ParquetReader if kind == "parquet" else JsonlReader)(str(tmp_path / "in"), **options)
    estimate = looked_at(reader)
    text = sum(len(document["text"]) for document in documents)
    assert estimate.documents == pytest.approx(ROWS, rel=0.2)
    assert estimate.text_bytes == pytest.approx(text, rel=0.2)
    assert 0 < estimate.seconds_each < 0.01


def test_rows_of_parquet_files_are_counted_where_these_are_not_alike(tmp_path, documents):
    (tmp_path / "in").mkdir()
    for n in range(40):
        some = documents[:20] if n % 2 else documents[: 20 * n]
        pq.write_table(pa.Table.from_pylist(some), tmp_path / f"in/{n:02d}.parquet")
    estimate = looked_at(ParquetReader(str(tmp_path / "in")))
    assert estimate.documents == pytest.approx(sum(20 if n % 2 else 20 * n for n in range(40)), rel=0.3)


def test_an_input_that_cannot_be_read_or_lacks_the_field_has_no_forecast(tmp_path, documents):
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


def test_memory_grows_with_documents_and_stays_below_a_limit_that_is_high_enough(tmp_path, documents):
    put(tmp_path / "in", documents, "jsonl")
    estimate = looked_at(JsonlReader(str(tmp_path / "in")))
    for stage in (ExactDeduplication(), FuzzyDeduplication(), LineDeduplication()):
        sizes = []
        for times in (1, 100, 10_000):
            more = replace(
                estimate,
                documents=estimate.documents * times,
                text_bytes=estimate.text_bytes * times,
                keys=estimate.keys * times,
            )
            sizes.append(stage.forecast(more, 8 * GIB, 2, stored=False).memory_bytes)
        assert sizes == sorted(sizes) and sizes[0] < sizes[2], stage
        assert sizes[1] < 8 * GIB, stage
        lines = forecast(stage, estimate, 64 << 20, 2, [])
        assert "the estimate is above memory_limit" in lines[-1]


MIXED = (
    ("jsonl", "jsonl.gz"),
    ("jsonl.gz", "jsonl"),
    ("jsonl", "jsonl.xz", "jsonl.bz2"),
    ("jsonl", "parquet", "jsonl.gz"),
)


@pytest.mark.parametrize("kinds", MIXED)
def test_plain_and_compressed_files_together_are_estimated_each_by_its_kind(tmp_path, documents, kinds):
    (tmp_path / "in").mkdir()
    for n, kind in enumerate(kinds):
        put(tmp_path / kind, documents, kind)
        for path in (tmp_path / kind).iterdir():
            path.rename(tmp_path / "in" / f"{n}-{path.name}")
    reader = (DocumentReader if "parquet" in kinds else JsonlReader)(str(tmp_path / "in"))
    estimate = looked_at(reader)
    text = sum(len(document["text"]) for document in documents)
    assert estimate.documents == pytest.approx(ROWS * len(kinds), rel=0.15)
    assert estimate.text_bytes == pytest.approx(text * len(kinds), rel=0.15)
    assert estimate.stream_bytes > 0
    assert looked_at(reader.limited(limit=500)).documents == pytest.approx(500, rel=0.01)
    assert looked_at(reader.limited(sample=0.1)).documents == pytest.approx(ROWS * len(kinds) / 10, rel=0.15)


@pytest.mark.parametrize("kind", [*PACKED, "parquet"])
def test_a_forecast_with_a_limit_is_made_of_the_documents_that_are_read(tmp_path, kind):
    rows = [{"text": "short text"}] * 100 + [{"text": "long text " * 100}] * 5000
    put(tmp_path / "in", rows, kind)
    reader = (ParquetReader if kind == "parquet" else JsonlReader)(str(tmp_path / "in"), limit=100)
    estimate = looked_at(reader)
    assert estimate.documents == 100
    assert estimate.text_bytes == pytest.approx(1000, rel=0.05)


def test_verification_takes_more_of_all(tmp_path, documents):
    put(tmp_path / "in", documents, "jsonl")
    estimate = replace(looked_at(JsonlReader(str(tmp_path / "in"))), documents=10**7, text_bytes=10**10)
    plain, verified = (
        FuzzyDeduplication(verify=on).forecast(estimate, 8 * GIB, 2, stored=False) for on in (False, True)
    )
    assert verified.disk_bytes - plain.disk_bytes == pytest.approx(10**10 / 3, rel=0.01)
    assert verified.memory_bytes > plain.memory_bytes and verified.seconds > plain.seconds
    assert verified.memory_bytes < 8 * GIB


def test_memory_follows_the_size_of_reads(tmp_path, documents):
    put(tmp_path / "plain", documents, "jsonl")
    put(tmp_path / "packed", documents, "jsonl.gz")
    small = looked_at(JsonlReader(str(tmp_path / "plain"), blocksize="100KB"))
    assert 90_000 < small.block_bytes <= 102_400 and small.stream_bytes == 0
    packed = looked_at(JsonlReader(str(tmp_path / "packed"), blocksize="300KB"))
    assert packed.block_bytes == 0 and packed.stream_bytes == 307_200
    held = [(1, 0), (64, 0), (64, 64)]
    several = [replace(small, block_bytes=block << 20, stream_bytes=stream << 20) for block, stream in held]
    memory = [FuzzyDeduplication().forecast(estimate, 8 * GIB, 2, stored=False).memory_bytes for estimate in several]
    assert memory[0] < memory[1] < memory[2]


def test_documents_that_are_put_aside_are_counted_with_all_their_fields(tmp_path, documents):
    source, out = tmp_path / "in", tmp_path / "out"
    more = [{**document, "raw": document["text"][::-1]} for document in documents]
    put(source, more, "jsonl")
    stages = [JsonlReader(str(source)), ScoreFilter(WordCountFilter(min_words=1)), ExactDeduplication()]
    stages.append(JsonlWriter(str(out)))
    peak = 0

    class Watched(InProcess):
        def execute(self, *arguments):
            nonlocal peak
            record = super().execute(*arguments)
            folder = out / "_gristmill/phases/1"
            peak = max(peak, sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()))
            return record

    pipeline = Pipeline("aside", stages=stages)
    estimate = estimate_input(stages[2], stages[0], stages[0].source(), stages[1:])
    expected = stages[2].forecast(estimate, 8 * GIB, 2, stored=True).disk_bytes
    pipeline.run(Watched())
    assert expected == pytest.approx(peak, rel=0.25)


def test_a_dry_run_prints_the_forecast_and_its_limits(tmp_path, documents, capsys):
    put(tmp_path / "in", documents, "jsonl.gz")
    (tmp_path / "p.yaml").write_text(
        "stages:\n"
        f"  - JsonlReader: {{file_paths: {tmp_path}/in}}\n"
        "  - ScoreFilter: {filter_obj: {WordCountFilter: {min_words: 5}}}\n"
        "  - FuzzyDeduplication: {verify: true}\n"
        f"  - JsonlWriter: {{path: {tmp_path}/out}}\n"
    )
    assert main(["run", str(tmp_path / "p.yaml"), "--dry-run", "--cpus", "2", "--memory-limit", "4GB"]) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("forecast: FuzzyDeduplication")]
    assert len(lines) == 3
    assert " documents, " in lines[0] and "of 4.0 GB" in lines[1] and "(ScoreFilter) drop" in lines[2]
    assert not (tmp_path / "out").exists()


def test_a_stage_inside_a_composite_has_a_forecast_too(tmp_path, documents):
    class Both(CompositeStage):
        name = "both"

        def decompose(self):
            return [ExactDeduplication(), FuzzyDeduplication()]

    put(tmp_path / "in", documents, "jsonl")
    stages = [JsonlReader(str(tmp_path / "in")), Both(), JsonlWriter(str(tmp_path / "out"))]
    lines = list(forecasts(flatten(stages), InProcess()))
    assert {line.partition(":")[0] for line in lines} == {"ExactDeduplication", "FuzzyDeduplication"}
