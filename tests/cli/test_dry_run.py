"""`gristmill run --dry-run` says what a run would do with its output folder, and leaves it as it is."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.stages.deduplication.corpora import write_jsonl

from gristmill.cli.main import main
from gristmill.ledger.commits import CommitLog
from gristmill.ledger.lock import FolderLock
from gristmill.storage import Folder

PLAIN = """\
name: p
stages:
  - JsonlReader: {file_paths: in, blocksize: 400}
  - ScoreFilter: {filter_obj: {WordCountFilter: {min_words: 3}}, text_field: text}
  - JsonlWriter: {path: out}
"""
DEDUP = PLAIN.replace("  - JsonlWriter", "  - ExactDeduplication: {}\n  - JsonlWriter")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    write_jsonl(tmp_path / "in" / "a.jsonl", [{"text": f"this is document {n // 2}"} for n in range(40)])
    (tmp_path / "plain.yaml").write_text(PLAIN)
    (tmp_path / "dedup.yaml").write_text(DEDUP)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def contents(folder: Path) -> dict[str, tuple[int, bytes]]:
    """All files and folders below, with what changes when they do."""
    return {
        str(path.relative_to(folder)): (path.stat().st_mtime_ns, path.read_bytes() if path.is_file() else b"")
        for path in [folder, *folder.rglob("*")]
    }


def run(*arguments: str) -> None:
    assert main(["run", *arguments, "--view", "off", "--cpus", "1"]) == 0


def dry_run(folder: Path, capsys: pytest.CaptureFixture[str], *arguments: str, status: int = 0) -> str:
    """Return what a dry run prints about the output. It must not change anything."""
    capsys.readouterr()
    before = contents(folder)
    assert main(["run", *arguments, "--dry-run"]) == status
    assert contents(folder) == before
    shown = capsys.readouterr()
    if status:
        return shown.err
    place, *rest = shown.out.partition("output: ")[2].partition("\nnothing was run")[0].split("\noutput: ")
    assert place == str(folder / "out")
    return "\n".join(rest).partition("\nforecast: ")[0]


def undo(log: CommitLog, *blocks: int) -> int:
    """Take commits of blocks out of a log, as if the run had been stopped before them; gives how many are left."""
    log.rewrite(blocks)
    log.folder.remove("_gristmill/ledger.json")
    return len(list(log.commits()))


@pytest.mark.parametrize("name", ["plain.yaml", "dedup.yaml"])
def test_a_new_output_a_finished_one_and_one_that_starts_over(folder, capsys, name):
    assert dry_run(folder, capsys, name) == "the run would start a new output"
    assert dry_run(folder, capsys, name, "--fresh") == "the run would start a new output"
    run(name)
    total = len(list(CommitLog(Folder("out")).commits()))
    assert dry_run(folder, capsys, name) == f"the run would find nothing to do: all {total} blocks are done"
    assert "would start over, and remove what earlier runs have written" in dry_run(folder, capsys, name, "--fresh")


def test_a_run_that_resumes_and_one_that_repairs(folder, capsys):
    run("plain.yaml")
    left = undo(CommitLog(Folder("out")), 1)
    assert dry_run(folder, capsys, "plain.yaml") == f"the run would resume: {left} of {left + 1} blocks are done"
    run("plain.yaml")
    (folder / "out" / "part-000000.jsonl").unlink()
    shown = dry_run(folder, capsys, "plain.yaml")
    assert shown.startswith(f"the run would resume: {left} of {left + 1} blocks are done")
    assert "1 block is done again" in shown and "part-000000.jsonl is missing" in shown


@pytest.mark.parametrize("name", ["plain.yaml", "dedup.yaml"])
def test_a_run_that_is_refused(folder, capsys, name):
    run(name)
    other = "ScoreFilter.filter_obj={WordCountFilter: {min_words: 4}}"
    shown = dry_run(folder, capsys, name, "--set", other, status=1)
    assert "holds the output of another run" in shown and "min_words" in shown
    lock = FolderLock(Folder("out"))
    lock.acquire()
    try:
        assert "another run is writing to" in dry_run(folder, capsys, name, status=1)
    finally:
        lock.release()
    (folder / "file").write_text("")
    assert "cannot be written to" in dry_run(folder, capsys, name, "--set", "JsonlWriter.path=file/out", status=1)
    Path("taken").mkdir()
    Path("taken/part-000000.jsonl").write_text("{}\n")
    assert "holds part-000000.jsonl" in dry_run(folder, capsys, name, "--set", "JsonlWriter.path=taken", status=1)


def test_files_that_are_appended(folder, capsys):
    run("plain.yaml")
    write_jsonl(folder / "in" / "b.jsonl", [{"text": "this is another document"}])
    assert "b.jsonl is new" in dry_run(folder, capsys, "plain.yaml", status=1)
    shown = dry_run(folder, capsys, "plain.yaml", "--append")
    total = len(list(CommitLog(Folder("out")).commits()))
    assert f"the run would append: {total} of {total + 1} blocks are done" in shown
    assert "1 input file is new" in shown


def test_a_pipeline_in_phases_resumes_where_it_was(folder, capsys):
    run("dedup.yaml")
    total = len(list(CommitLog(Folder("out")).commits()))
    run("dedup.yaml", "--fresh")
    phase = CommitLog(Folder("out/_gristmill/phases/1"))
    phase.folder.remove("decided.json")
    shown = dry_run(folder, capsys, "dedup.yaml")
    assert shown.startswith("the run would resume with what comes before 'ExactDeduplication': 0 of ")
    assert f"{total} blocks are done again" in shown  # a run that ended removes the documents it had put aside
