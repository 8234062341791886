"""The first documents of an input, or a sample of them: the same ones however the input is cut and wherever it lies."""

from __future__ import annotations

import bz2
import gzip
import json
import random
import shutil

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gristmill.backends.local import LocalExecutor
from gristmill.cli.main import main
from gristmill.errors import OutputChanged
from gristmill.pipeline import Pipeline
from gristmill.stages.deduplication.exact import ExactDeduplication
from gristmill.stages.text.io import DocumentReader, JsonlReader, JsonlWriter, ParquetReader

SEED = random.randrange(10**6)
FILES = {"a": 700, "b": 1, "c": 0, "d": 1500, "e": 300}
CUTS = [{}, {"blocksize": 3000}, {"blocksize": "1GB"}, {"files_per_partition": 2}]


def texts_of(name: str, count: int) -> list[str]:
    rng = random.Random(f"{SEED} {name}")
    return [f"{name} {i} {'x' * rng.randrange(60)}" for i in range(count)]


TEXTS = [text for name, count in FILES.items() for text in texts_of(name, count)]


def jsonl(name: str, count: int) -> bytes:
    rng = random.Random(f"{SEED} lines {name}")
    blank = [b"", b"", b"", b"\n", b"  \n", b"\t\r\n"]
    end = [b"\n", b"\r\n"]
    lines = [json.dumps({"text": text}).encode() for text in texts_of(name, count)]
    return b"".join(rng.choice(blank) + b" " * rng.randrange(2) + line + rng.choice(end) for line in lines)


def put_all(work, kind: str) -> str:
    print("seed", SEED)
    for n, (name, count) in enumerate(FILES.items()):
        file = kind if kind != "mixed" else ("jsonl", "parquet", "gz")[n % 3]
        if file == "parquet":
            path = work.source / f"{name}.parquet"
            schema = pa.schema([("text", pa.string())])
            pq.write_table(pa.table({"text": texts_of(name, count)}, schema=schema), path, row_group_size=170)
        elif file == "jsonl":
            work.put(f"{name}.jsonl", jsonl(name, count))
        else:
            packed = {"gz": gzip.compress, "bz2": bz2.compress}[file](jsonl(name, count))
            work.put(f"{name}.jsonl.{file}", packed)
    return str(work.source)


READERS = {
    "jsonl": JsonlReader,
    "gz": JsonlReader,
    "bz2": JsonlReader,
    "parquet": ParquetReader,
    "mixed": DocumentReader,
}


def read(work, reader) -> tuple[list[str], int]:
    """The texts, and how many documents were not in the sample."""
    batches = work.batches(reader)
    accounts = [batch.account for batch in batches]
    found = [text for batch in batches for text in batch.data["text"].to_pylist()]
    assert sum(account.read.total() for account in accounts) == len(found)
    assert not any(account.bad for account in accounts)
    return found, sum(account.counters["not in the sample"] for account in accounts)


@pytest.mark.parametrize("kind", READERS)
def test_a_limit_is_the_first_documents_in_order(work, kind):
    folder = put_all(work, kind)
    for limit in (1, 699, 700, 701, 702, random.Random(SEED).randrange(703, 2400), 2501, 10_000):
        for cut in CUTS:
            reader = READERS[kind](folder, limit=limit, **cut)
            assert read(work, reader) == (TEXTS[:limit], 0)
            last = {700: 1, 701: 2}.get(limit)
            if last is not None:  # later files are not part of the run at all
                assert len(reader.versions()) == last


@pytest.mark.parametrize("kind", READERS)
def test_a_sample_is_the_same_however_the_input_is_cut(work, kind):
    folder = put_all(work, kind)
    reader = READERS[kind]
    wanted, skipped = read(work, reader(folder, sample=0.2))
    assert 350 < len(wanted) < 650 and skipped == 2501 - len(wanted)
    assert wanted == [text for text in TEXTS if text in set(wanted)]
    for cut in CUTS[1:]:
        assert read(work, reader(folder, sample=0.2, **cut)) == (wanted, skipped)
    smaller, _ = read(work, reader(folder, sample=0.02))
    assert 10 < len(smaller) < 110 and set(smaller) < set(wanted)
    assert read(work, reader(folder, sample=1)) == (TEXTS, 0)


@pytest.mark.parametrize("kind", READERS)
def test_a_limit_counts_documents_of_the_sample(work, kind):
    folder = put_all(work, kind)
    reader = READERS[kind]
    sampled, _ = read(work, reader(folder, sample=0.2))
    for limit in (1, 100, len(sampled) - 1, len(sampled), len(sampled) + 1):
        for cut in CUTS:
            found, skipped = read(work, reader(folder, sample=0.2, limit=limit, **cut))
            assert found == sampled[:limit]
            until = TEXTS.index(found[-1]) + 1 if limit <= len(sampled) else len(TEXTS)
            assert until - len(found) <= skipped <= len(TEXTS) - len(found)


def test_a_sample_does_not_depend_on_where_the_input_lies(work, monkeypatch):
    folder = put_all(work, "jsonl")
    wanted, _ = read(work, JsonlReader(folder, sample=0.3))
    shutil.copytree(folder, work.folder / "elsewhere" / "copy")
    monkeypatch.chdir(work.folder)
    for path in ("elsewhere/copy", "elsewhere/copy/*.jsonl", [f"elsewhere/copy/{name}.jsonl" for name in FILES]):
        assert read(work, JsonlReader(path, sample=0.3))[0] == wanted


def test_bad_records_count_as_documents(work):
    lines = [b'{"text": "a"}', b'{"text": 3}', b"{", b'{"text": "b"}', b'{"text": "c"}']
    path = work.put("a.jsonl", b"\n".join(lines))
    [batch] = work.batches(JsonlReader(path, limit=4))
    assert batch.data["text"].to_pylist() == ["a", "b"] and len(batch.account.bad) == 2
    data = gzip.compress(b"\n".join(lines), mtime=0)
    work.put("b.jsonl.gz", data[:-8])  # cut short behind all lines
    for limit in (4, 5, 6, 7):
        paths = [str(work.source / "b.jsonl.gz"), path]
        batches = work.batches(JsonlReader(sorted(paths, reverse=True), limit=limit))
        assert sum(batch.account.read.total() for batch in batches) == limit


@pytest.mark.parametrize(("name", "value"), [("limit", 0), ("limit", -1), ("limit", 2.5), ("limit", True)])
def test_a_limit_that_makes_no_sense_is_an_error(name, value):
    with pytest.raises(ValueError, match="limit must be a whole number above 0"):
        JsonlReader("x", limit=value)


@pytest.mark.parametrize("value", [0, -0.1, 1.1, "0.1", True, float("nan")])
def test_a_sample_that_makes_no_sense_is_an_error(value):
    with pytest.raises(ValueError, match="sample must be a fraction"):
        ParquetReader("x", sample=value)


def kept(out) -> bytes:
    return b"".join(path.read_bytes() for path in sorted(out.glob("part-*")))


def test_a_run_is_the_same_with_any_number_of_workers_and_balances(work):
    folder = put_all(work, "mixed")
    for cpus in (1, 3):
        out = work.folder / f"out{cpus}"
        reader = DocumentReader(folder, sample=0.3, limit=400, blocksize=5000)
        stages = [reader, ExactDeduplication(), JsonlWriter(str(out))]
        result = Pipeline("p", stages=stages).run(LocalExecutor(config={"view": "off", "num_cpus": cpus}))
        whole = result.ledger.total()
        assert (whole.documents, whole.kept, whole.imbalance()) == (400, 400, "")
        assert whole.counters["DocumentReader", "not in the sample"] > 400
        assert "not in the sample" in result.summary()
    assert kept(work.folder / "out1") == kept(work.folder / "out3") != b""


def test_the_command_takes_both_and_the_output_remembers_them(work, capsys):
    folder = put_all(work, "jsonl")
    target = work.folder / "p.yaml"
    out = work.folder / "out"
    target.write_text(
        f"stages:\n  - JsonlReader: {{file_paths: {folder}}}\n    name: reading\n  - JsonlWriter: {{path: {out}}}\n"
    )
    run = ["run", str(target), "--view", "off"]
    assert main([*run, "--limit", "50", "--sample", "0.5"]) == 0
    wanted, _ = read(work, JsonlReader(folder, sample=0.5, limit=50))
    assert [json.loads(line)["text"] for line in kept(out).splitlines()] == wanted
    assert main([*run, "--limit", "50", "--sample", "0.5"]) == 0
    assert "reading: not in the sample" in capsys.readouterr().out
    assert main(run) == 1
    told = capsys.readouterr().err
    assert "limit" in told and "sample" in told
    with pytest.raises(OutputChanged, match="limit was 50, now it is 60"):
        stages = [JsonlReader(folder, limit=60, sample=0.5).with_(name="reading"), JsonlWriter(str(out))]
        Pipeline("p", stages=stages).run(LocalExecutor(config={"view": "off"}))


@pytest.mark.parametrize("flags", [["--limit", "0"], ["--sample", "2"], ["--sample", "x"], ["--limit", "1.5"]])
def test_the_command_refuses_what_makes_no_sense(flags, capsys):
    with pytest.raises(SystemExit):
        main(["run", "p.yaml", *flags])
    assert flags[1] in capsys.readouterr().err


def test_the_command_refuses_a_pipeline_without_a_reader(tmp_path, capsys):
    target = tmp_path / "p.py"
    target.write_text(
        "from gristmill.pipeline import Pipeline\nfrom gristmill.tasks import EmptyTask\n"
        "from gristmill.stages.function_definitions import processing_stage\n\n"
        "@processing_stage(name='one')\ndef one(task: EmptyTask) -> EmptyTask:\n    return task\n\n"
        "pipeline = Pipeline('p', stages=[one])\n"
    )
    assert main(["run", str(target), "--limit", "5"]) == 2
    assert "begin with a reader" in capsys.readouterr().err
