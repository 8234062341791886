"""Documents that a stage failed on are tried again, and a run that keeps nothing is no success."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.ledger.conftest import written
from tests.stages.deduplication.corpora import execute, write_jsonl

from gristmill.cli.main import main
from gristmill.errors import NothingKept, OutputChanged, PipelineFailed
from gristmill.pipeline.verify import verify_output
from gristmill.stages.core import ProcessingStage
from gristmill.stages.deduplication.exact import ExactDeduplication
from gristmill.stages.text.filters import ScoreFilter, WordCountFilter
from gristmill.stages.text.io import JsonlReader, JsonlWriter
from gristmill.tasks import DocumentBatch


class Flaky(ProcessingStage[DocumentBatch, DocumentBatch]):
    """Fails on every 97th document while a file is there, as a service that is down does."""

    def __init__(self, place: str) -> None:
        self.name = "flaky"
        self.place = place  # not the path of the file: files that arguments name belong to the fingerprint

    def inputs(self) -> tuple[list[str], list[str]]:
        return ["data"], ["n"]

    def process(self, task: DocumentBatch) -> DocumentBatch:
        if Path(self.place, "down").exists() and any(n % 97 == 0 for n in task.data.column("n").to_pylist()):
            raise ConnectionError("the service is down")
        return task


class FlakyKeys(ExactDeduplication):
    """The same before a cut."""

    place = ""

    def keys(self, batch: DocumentBatch):
        if Path(self.place, "down").exists() and 97 in batch.data.column("n").to_pylist():
            raise ValueError("the service is down")
        return super().keys(batch)

    def inputs(self):
        return ["data"], ["text", "n"]


def stages(kind: str, corpus: Path, out: Path, down: Path) -> list:
    words, flaky = ScoreFilter(WordCountFilter(min_words=15)), Flaky(str(down.parent))
    barrier = FlakyKeys()
    barrier.place = str(down.parent)
    middle = {
        "filter": [words, flaky],
        "behind, read again": [ExactDeduplication(), words, flaky],
        "behind, put aside": [words, ExactDeduplication(), flaky],
        "before, read again": [barrier, words],
        "before, put aside": [words, flaky, ExactDeduplication()],
    }
    return [JsonlReader(str(corpus), blocksize="30KB"), *middle[kind], JsonlWriter(str(out))]


KINDS = ("filter", "behind, read again", "behind, put aside", "before, read again", "before, put aside")


@pytest.mark.parametrize(("kind", "workers"), [*((kind, 0) for kind in KINDS), ("filter", 2)])
def test_retried_documents_end_as_in_a_run_that_never_failed(corpus, tmp_path, kind, workers, capsys):
    out, down = tmp_path / "out", tmp_path / "down"

    def run(out: Path, **how):
        return execute(*stages(kind, corpus, out, down), workers=workers, ignore_failures=True, **how)

    run(tmp_path / "whole")
    down.touch()
    failed = run(out)
    assert "--retry-failed" in failed.summary()
    assert failed.ledger.total().failed and written(out) != written(tmp_path / "whole")
    down.unlink()
    left = run(out)
    assert left.ledger.total() == failed.ledger.total()  # a plain resume does not try them again
    retried = run(out, retry_failed=True)
    assert not retried.ledger.total().failed and "--retry-failed" not in retried.summary()
    assert written(out) == written(tmp_path / "whole")
    ledgers = [(folder / "_gristmill/ledger.json").read_bytes() for folder in (out, tmp_path / "whole")]
    assert ledgers[0] == ledgers[1]
    told = capsys.readouterr().err
    assert ("starts over" in told) == (kind not in ("filter", "behind, read again"))
    assert not verify_output(str(out)).problems
    run(out, retry_failed=True)
    assert "there is nothing to retry" in capsys.readouterr().err
    assert written(out) == written(tmp_path / "whole")


def test_documents_that_fail_once_more_are_in_quarantine_once_more(corpus, tmp_path):
    out, down = tmp_path / "out", tmp_path / "down"
    down.touch()
    execute(*stages("filter", corpus, out, down), ignore_failures=True)
    before = written(out)
    execute(*stages("filter", corpus, out, down), ignore_failures=True, retry_failed=True)
    assert written(out) == before
    with pytest.raises(PipelineFailed):
        execute(*stages("filter", corpus, out, down), retry_failed=True)
    down.unlink()
    execute(*stages("filter", corpus, out, down))
    execute(*stages("filter", corpus, tmp_path / "whole", down))
    assert written(out) == written(tmp_path / "whole")


@pytest.mark.parametrize("change", ["before", "after", "input"])
def test_a_retry_of_another_pipeline_or_input_removes_nothing(corpus, tmp_path, change):
    out, down = tmp_path / "out", tmp_path / "down"
    down.touch()
    execute(*stages("before, put aside", corpus, out, down), ignore_failures=True)
    before = written(out)
    down.unlink()
    others = stages("before, put aside", corpus, out, down)
    if change == "input":
        others[0] = JsonlReader(str(write_jsonl(tmp_path / "other.jsonl", [{"n": 1, "text": "flour " * 20}])))
    else:
        others.insert(1 if change == "before" else 4, ScoreFilter(WordCountFilter(min_words=16)))
    with pytest.raises(OutputChanged, match="holds the output of another run"):
        execute(*others, ignore_failures=True, retry_failed=True)
    assert written(out) == before
    assert not verify_output(str(out)).problems


def test_malformed_lines_are_not_tried_again(corpus, tmp_path):
    out, down = tmp_path / "out", tmp_path / "down"
    execute(*stages("filter", corpus, out, down))
    before = {path: path.stat().st_mtime_ns for path in out.rglob("*.jsonl") if "_gristmill" not in path.parts}
    result = execute(*stages("filter", corpus, out, down), retry_failed=True)
    assert result.ledger.total().errored and result.ledger.resumed == len(result.ledger.blocks)
    assert before == {path: path.stat().st_mtime_ns for path in before}


@pytest.mark.parametrize("barrier", [False, True])
def test_a_run_that_keeps_nothing_fails_unless_that_is_wanted(corpus, tmp_path, barrier):
    def run(**how):
        nothing = ScoreFilter(WordCountFilter(min_words=10_000))
        middle = [ExactDeduplication(), nothing] if barrier else [nothing]
        return execute(JsonlReader(str(corpus)), *middle, JsonlWriter(str(tmp_path / "out")), **how)

    with pytest.raises(NothingKept, match=r"read 600 documents and kept none:\n    .*dropped by") as error:
        run()
    assert error.value.result.ledger.total().documents == 600 and "allow_empty" in str(error.value)
    with pytest.raises(NothingKept):
        run()
    assert run(allow_empty=True).ok
    assert not verify_output(str(tmp_path / "out")).problems


def test_an_empty_input_is_no_failure(tmp_path):
    (tmp_path / "none.jsonl").write_text("")
    assert execute(JsonlReader(str(tmp_path / "none.jsonl")), JsonlWriter(str(tmp_path / "out"))).ok


def test_the_exit_status_of_a_run_that_keeps_nothing(corpus, tmp_path, capsys):
    job = tmp_path / "pipeline.yaml"
    job.write_text(
        f"stages:\n  - JsonlReader: {{file_paths: {json.dumps(str(corpus))}}}\n"
        "  - ScoreFilter: {filter_obj: {WordCountFilter: {min_words: 10000}}}\n"
        f"  - JsonlWriter: {{path: {json.dumps(str(tmp_path / 'out'))}}}\n"
    )
    assert main(["run", str(job), "--view", "off"]) == 1
    assert "kept none" in capsys.readouterr().err
    assert main(["run", str(job), "--view", "off", "--allow-empty"]) == 0
    assert main(["run", str(job), "--view", "off", "--allow-empty", "--retry-failed"]) == 0


def test_the_command_tries_failed_documents_again(corpus, tmp_path):
    job = tmp_path / "pipeline.yaml"
    job.write_text(
        f"imports: [tests.ledger.test_retry]\nstages:\n  - JsonlReader: {{file_paths: {json.dumps(str(corpus))}}}\n"
        f"  - {{_target_: tests.ledger.test_retry.Flaky, place: {json.dumps(str(tmp_path))}}}\n"
        f"  - JsonlWriter: {{path: {json.dumps(str(tmp_path / 'out'))}}}\n"
    )
    run = ["run", str(job), "--view", "off"]
    (tmp_path / "down").touch()
    assert main([*run, "--ignore-failures"]) == 0
    failed = written(tmp_path / "out")
    (tmp_path / "down").unlink()
    assert main(run) == 0
    assert written(tmp_path / "out") == failed, "failed documents are done unless they are asked for"
    assert main([*run, "--retry-failed"]) == 0
    assert main([*run, "--set", f"JsonlWriter.path={tmp_path / 'whole'}"]) == 0
    assert written(tmp_path / "out") == written(tmp_path / "whole") != failed
