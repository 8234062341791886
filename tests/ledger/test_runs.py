"""Whole runs: every document is accounted for, and a run that was stopped resumes."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa
import pytest
from tests.ledger.conftest import written

from gristmill.backends.local import LocalExecutor
from gristmill.errors import OutputChanged, PipelineError, PipelineFailed, PlanError
from gristmill.pipeline import Pipeline
from gristmill.stages.core import ProcessingStage
from gristmill.stages.function_definitions import processing_stage
from gristmill.stages.text.filters import ScoreFilter, WordCountFilter
from gristmill.stages.text.io import JsonlReader, JsonlWriter
from gristmill.tasks import DocumentBatch

QUIET = {"view": "off", "num_cpus": 2}


def curate(corpus: Path, out: Path, *stages: ProcessingStage, min_words: int = 50, blocksize: str = "20KB") -> Pipeline:
    return Pipeline(
        "curate",
        stages=[
            JsonlReader(str(corpus), blocksize=blocksize),
            ScoreFilter(WordCountFilter(min_words=min_words)),
            *stages,
            JsonlWriter(str(out)),
        ],
    )


def run(pipeline: Pipeline, **options):
    names = ("fresh", "append", "retry_failed", "verify", "allow_empty")
    how = {name: options.pop(name) for name in names if name in options}
    return pipeline.run(LocalExecutor(config={**QUIET, **options}), **how)


def test_every_document_is_accounted_for(corpus, tmp_path):
    result = run(curate(corpus, tmp_path / "out"))
    whole = result.ledger.total()
    kept = [
        json.loads(line)
        for name, data in written(tmp_path / "out").items()
        if name.startswith("part-")
        for line in data.splitlines()
    ]
    dropped = [
        json.loads(line)
        for name, data in written(tmp_path / "out").items()
        if name.startswith("excluded")
        for line in data.splitlines()
    ]
    assert whole.documents == 600 and whole.errored.total() == 6
    assert (whole.kept, whole.dropped.total()) == (len(kept), len(dropped))
    assert whole.kept + whole.dropped.total() == 594 and whole.dropped.total() > 0
    assert all(len(d["text"].split()) < 50 for d in dropped) and all(len(d["text"].split()) >= 50 for d in kept)
    assert {d["excluded_stage"] for d in dropped} == {"ScoreFilter"} and dropped[0]["excluded_score"] < 50
    assert sorted(result.ledger.files) == [str(corpus / f"{name}.jsonl") for name in "abc"]
    for entry in result.ledger.files.values():
        assert entry.read == 200 and entry.balances


def test_bad_records_are_in_quarantine_with_file_position_and_reason(corpus, tmp_path):
    run(curate(corpus, tmp_path / "out"))
    entries = [
        json.loads(line)
        for name, data in written(tmp_path / "out").items()
        if name.startswith("quarantine")
        for line in data.splitlines()
    ]
    assert len(entries) == 6
    for entry in entries:
        content = Path(entry["file"]).read_bytes()[entry["position"] :]
        assert content.startswith(entry["raw"].encode()[:10]) and entry["reason"]


@processing_stage(name="halve")
def halve(task: DocumentBatch) -> DocumentBatch:
    frame = task.to_pandas()
    task.data = frame[frame["n"] % 2 == 0]
    return task


def test_rows_that_vanish_in_a_users_code_are_dropped_without_a_reason(corpus, tmp_path):
    result = run(curate(corpus, tmp_path / "out", halve))
    whole = result.ledger.total()
    kept = [
        json.loads(line)
        for name, data in written(tmp_path / "out").items()
        if name.startswith("part-")
        for line in data.splitlines()
    ]
    assert all(d["n"] % 2 == 0 for d in kept) and whole.kept == len(kept)
    assert whole.dropped["halve", "unspecified"] > 0 and not result.ledger.problems
    lost = [
        json.loads(line)
        for name, data in written(tmp_path / "out").items()
        if "step2" in name
        for line in data.splitlines()
    ]
    assert len(lost) == whole.dropped["halve", "unspecified"] and all(d["n"] % 2 for d in lost)


class Forgetful(ProcessingStage[DocumentBatch, DocumentBatch]):
    """Loses the column of the ids, and notes the tasks that it is called with."""

    name = "forgetful"

    def __init__(self, calls: str) -> None:
        self.calls = calls

    def process(self, task: DocumentBatch) -> DocumentBatch:
        with open(self.calls, "a") as file:
            file.write(f"{task.task_id}\n")
        return DocumentBatch(pa.table({"text": task.data.column("text")}))


@pytest.mark.parametrize("ignore_failures", [False, True])
def test_a_stage_that_loses_the_ids_ends_the_run_at_once_and_by_name(corpus, tmp_path, ignore_failures):
    executor = LocalExecutor({**QUIET, "ignore_failures": ignore_failures})
    words = "'curate' was stopped: 'forgetful' returned documents without the column '_gristmill_id'"
    with pytest.raises(PipelineError, match=words) as raised:
        curate(corpus, tmp_path / "out", Forgetful(str(tmp_path / "calls"))).run(executor)
    assert str(raised.value).count("returned documents without") == 1 and "select this one too" in str(raised.value)
    calls = (tmp_path / "calls").read_text().split()
    assert len(calls) == len(set(calls)) > 0  # no task was tried again, in whole or in parts
    assert not list((tmp_path / "out").glob("quarantine/*.failed-*"))


@processing_stage(name="hopeless")
def hopeless(task: DocumentBatch) -> DocumentBatch:
    raise ValueError("never")


def test_an_error_that_comes_again_is_described_once(corpus, tmp_path):
    with pytest.raises(PipelineFailed, match="ValueError: never") as raised:
        run(curate(corpus, tmp_path / "out", hopeless))
    assert "worker 0: the same error" in str(raised.value)


@processing_stage(name="picky")
def picky(task: DocumentBatch) -> DocumentBatch:
    if any(n % 97 == 0 for n in task.data.column("n").to_pylist()):
        raise ValueError("cannot stand it")
    return task


def test_documents_that_a_stage_fails_on_are_set_aside_one_by_one(corpus, tmp_path):
    result = run(curate(corpus, tmp_path / "out", picky), ignore_failures=True, max_attempts=1)
    whole = result.ledger.total()
    bad = sum(n for reason, n in whole.errored.items() if "cannot stand it" in reason)
    assert 0 < bad <= 9 and not result.ledger.problems
    entries = [
        json.loads(line)
        for name, data in written(tmp_path / "out").items()
        if ".failed-" in name
        for line in data.splitlines()
    ]
    assert len(entries) == bad and all(json.loads(e["raw"])["n"] % 97 == 0 for e in entries)


def test_the_bytes_do_not_depend_on_workers(corpus, tmp_path):
    outputs = []
    for workers in (1, 2, 4):
        out = tmp_path / f"out{workers}"
        run(curate(corpus, out), num_cpus=workers)
        outputs.append(written(out))
    assert outputs[0] == outputs[1] == outputs[2] and len(outputs[0]) > 10


def test_content_does_not_depend_on_the_blocksize(corpus, tmp_path):
    contents = set()
    for blocksize in ("1KB", "33KB", "1GB"):
        out = tmp_path / blocksize
        run(curate(corpus, out, blocksize=blocksize))
        contents.add(b"".join(data for name, data in written(out).items() if name.startswith("part-")))
    assert len(contents) == 1


def test_a_second_run_repeats_nothing(corpus, tmp_path):
    first = run(curate(corpus, tmp_path / "out"))
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "out").glob("part-*")}
    second = run(curate(corpus, tmp_path / "out"))
    assert before == {path: path.stat().st_mtime_ns for path in (tmp_path / "out").glob("part-*")}
    assert second.ledger.total() == first.ledger.total() and second.ledger.resumed == len(before)


def test_another_pipeline_or_input_is_refused_and_fresh_starts_over(corpus, tmp_path):
    run(curate(corpus, tmp_path / "out"))
    with pytest.raises(OutputChanged, match="stage 2"):
        run(curate(corpus, tmp_path / "out", min_words=10))
    with (corpus / "a.jsonl").open("a") as file:
        file.write('{"id": "late", "text": "more"}\n')
    with pytest.raises(OutputChanged, match=r"a\.jsonl has changed"):
        run(curate(corpus, tmp_path / "out"))
    again = run(curate(corpus, tmp_path / "out", min_words=10), fresh=True)
    assert again.ledger.total().documents == 601 and again.ledger.resumed == 0


def test_the_input_cannot_be_the_output(corpus):
    with pytest.raises(PlanError, match="write to another folder"):
        run(curate(corpus, corpus))


SCRIPT = """
import sys, time
from pathlib import Path
sys.path.insert(0, {tests!r})
from tests.ledger.test_runs import *

@processing_stage(name="slow")
def slow(task: DocumentBatch) -> DocumentBatch:
    time.sleep(0.02)
    return task

run(curate(Path(sys.argv[1]), Path(sys.argv[2]), slow, blocksize="4KB"))
"""


def parts(out: Path) -> int:
    return len(list(out.glob("part-*")))


def test_a_driver_killed_at_any_moment_is_finished_by_the_next(corpus, tmp_path):
    root = Path(__file__).parents[2]
    script = tmp_path / "job.py"
    script.write_text(SCRIPT.format(tests=str(root)))
    command = [sys.executable, str(script), str(corpus)]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    subprocess.run([*command, str(tmp_path / "whole")], check=True, env=env)
    whole = written(tmp_path / "whole")
    seed = random.randrange(1 << 32)
    print("seed", seed)
    rng = random.Random(seed)
    out, resumed = tmp_path / "out", 0
    for _ in range(5):
        process = subprocess.Popen([*command, str(out)], env=env, stderr=subprocess.DEVNULL)
        enough = parts(out) + rng.randint(0, 10)
        while parts(out) < enough and process.poll() is None:
            time.sleep(0.005)
        time.sleep(rng.uniform(0, 0.05))
        process.send_signal(signal.SIGKILL)
        resumed += process.wait() == -signal.SIGKILL
    assert resumed
    subprocess.run([*command, str(out)], check=True, env=env)
    assert written(out) == whole
    ledgers = [json.loads((x / "_gristmill" / "ledger.json").read_text()) for x in (out, tmp_path / "whole")]
    assert [x["total"] for x in ledgers] == [ledgers[0]["total"]] * 2
