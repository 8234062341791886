"""``gristmill dropped``: counts by reason, and examples."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from gristmill import Pipeline
from gristmill.cli.main import main
from gristmill.ledger.commits import CommitLog
from gristmill.stages.deduplication.exact import ExactDeduplication
from gristmill.stages.text.filters import DocumentFilter, ScoreFilter
from gristmill.stages.text.io import JsonlReader, JsonlWriter, ParquetWriter
from gristmill.storage import Folder

RED = "\x1b[31m\x1b]0;owned\x07 bad \u202e text\nand more"


class Shorter(DocumentFilter):
    name = "shorter"

    def score_document(self, text: str) -> int:
        return len(text)

    def keep_document(self, score: int) -> bool:
        return score < 100


class Clean(DocumentFilter):
    name = "clean"

    def score_document(self, text: str) -> bool:
        return "bad" not in text

    def keep_document(self, score: bool) -> bool:
        return bool(score)


WRITERS = {
    "jsonl": lambda path: JsonlWriter(path),
    "gzip": lambda path: JsonlWriter(path, compression="gzip"),
    "zstd": lambda path: JsonlWriter(path, compression="zstd"),
    "parquet": lambda path: ParquetWriter(path),
    "none": lambda path: JsonlWriter(path, excluded=False),
}


def run(folder: Path, writer: str = "jsonl") -> str:
    texts = ["fine", "long " * 100, RED, "good", "longer " * 100, "bad"]
    lines = [json.dumps({"id": f"doc {i}", "text": text}) for i, text in enumerate(texts)]
    (folder / "in.jsonl").write_text("\n".join(lines) + "\n")
    output = str(folder / "out")
    filters = [ScoreFilter(Shorter()).with_(name="size"), ScoreFilter(Clean()).with_(name="words")]
    Pipeline("p", stages=[JsonlReader(str(folder / "in.jsonl")), *filters, WRITERS[writer](output)]).run()
    return output


@pytest.mark.parametrize("writer", ["jsonl", "gzip", "zstd", "parquet"])
def test_examples_have_stage_reason_score_id_and_text(tmp_path, capsys, writer):
    output = run(tmp_path, writer)
    assert main(["dropped", output, "--reason", "shorter", "-n", "1"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith('1 of 2 documents\n\ndoc 1: dropped by size: shorter (score 500)\n  "long long ')
    assert "... (500 characters)" in shown
    assert main(["dropped", output, "--stage", "words"]) == 0
    shown = capsys.readouterr().out
    assert re.findall(r"^(doc \d)", shown, re.MULTILINE) == ["doc 2", "doc 5"]


def test_the_text_of_a_document_cannot_steer_the_terminal(tmp_path, capsys):
    assert main(["dropped", run(tmp_path), "--reason", "clean"]) == 0
    shown = capsys.readouterr().out
    assert shown.replace("\n", "").isprintable()
    assert r"\x1b[31m\x1b]0;owned\x07 bad \u202e text\nand more" in " ".join(shown.split())


def test_without_a_reason_there_are_counts(tmp_path, capsys):
    output = run(tmp_path)
    assert main(["dropped", output]) == 0
    counted = capsys.readouterr().out
    assert counted.startswith("4 documents were dropped\n\nsize\n  2  shorter\n\nwords\n  2  clean\n")
    (tmp_path / "out" / "_gristmill" / "ledger.json").unlink()  # as of a run that has not ended
    assert main(["dropped", output]) == 0
    assert capsys.readouterr().out == counted


@pytest.mark.parametrize("columns", [60, 80])
def test_it_fits(tmp_path, capsys, monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.chdir(tmp_path)
    run(tmp_path)
    for options in ([], ["--stage", "size"]):
        assert main(["dropped", "out", *options]) == 0
        assert max(map(len, capsys.readouterr().out.splitlines())) <= columns


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--reason", "nope"], "nothing was dropped with the reason 'nope'. There is: 'clean', 'shorter'"),
        (["--stage", "size", "--reason", "clean"], "There is: 'shorter'"),
        (["-n", "0"], "is not a whole number above 0"),
    ],
)
def test_what_is_not_there_is_an_error(tmp_path, capsys, options, says):
    output = run(tmp_path)
    try:
        status = main(["dropped", output, *options])
    except SystemExit as error:  # argparse's
        status = int(str(error.code))
    assert status == 2
    assert says in capsys.readouterr().err


def test_a_folder_that_is_no_output_and_files_that_are_damaged(tmp_path, capsys):
    assert main(["dropped", str(tmp_path)]) == 2
    assert "is not the output of a run" in capsys.readouterr().err
    output = run(tmp_path, "gzip")
    (damaged,) = Path(output, "excluded").iterdir()
    damaged.write_bytes(damaged.read_bytes()[:-20])
    assert main(["dropped", output, "--reason", "clean"]) == 2
    assert "is damaged" in capsys.readouterr().err


def test_a_writer_that_keeps_none_is_explained(tmp_path, capsys):
    assert main(["dropped", run(tmp_path, "none"), "--reason", "clean"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("0 of 2 documents\n") and "the option 'excluded' of the writer" in shown


@pytest.mark.parametrize("stages", [[], [ExactDeduplication()]])
def test_of_an_unfinished_run_only_committed_blocks_are_counted_and_shown(tmp_path, capsys, stages):
    lines = [json.dumps({"id": f"doc {i}", "text": f"bad text {i}" if i % 2 else f"text {i}"}) for i in range(40)]
    (tmp_path / "in.jsonl").write_text("\n".join(lines) + "\n")
    out = tmp_path / "out"
    reader = JsonlReader(str(tmp_path / "in.jsonl"), blocksize=400)
    Pipeline("p", stages=[reader, ScoreFilter(Clean()), *stages, JsonlWriter(str(out))]).run()
    assert main(["dropped", str(out)]) == 0
    assert "20 documents were dropped" in capsys.readouterr().out
    log = CommitLog(Folder(out / "_gristmill" / "phases" / "1" if stages else out))
    gone = next(entry.dropped.total() for block, entry, _ in log.commits() if block == 1)
    log.rewrite({1})  # as if the run had been stopped before this block
    (out / "_gristmill" / "ledger.json").unlink()
    assert main(["dropped", str(out)]) == 0
    assert gone and f"{20 - gone} documents were dropped" in capsys.readouterr().out
    if not stages:
        assert main(["dropped", str(out), "--reason", "clean", "-n", "40"]) == 0
        assert len(re.findall(r"^doc \d+: ", capsys.readouterr().out, re.MULTILINE)) == 20 - gone
