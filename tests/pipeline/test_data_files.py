"""Data files that stages, filters and modifiers read: a run that resumes refuses if one has changed."""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fsspec
import pytest

from gristmill import Pipeline
from gristmill.errors import OutputChanged
from gristmill.ledger.differences import differences
from gristmill.pipeline import data_files
from gristmill.pipeline.fingerprint import describe_stage
from gristmill.stages.core import ProcessingStage
from gristmill.stages.text.filters import DocumentFilter, ScoreFilter
from gristmill.stages.text.io import JsonlReader, JsonlWriter
from gristmill.stages.text.modifiers import DocumentModifier, Modify
from gristmill.tasks import DocumentBatch


class Table(DocumentFilter):
    """Not registered: its attributes are described."""

    def __init__(self, table: str) -> None:
        self.table = table

    def score_document(self, text: str) -> int:
        return text in Path(self.table).read_text().split()

    def keep_document(self, score: int) -> bool:
        return bool(score)


class Tagged(DocumentModifier):
    def __init__(self, options: dict[str, Any]) -> None:
        self.options = options

    def modify_document(self, text: str) -> str:
        return text


class Look(ProcessingStage[DocumentBatch, DocumentBatch]):
    def __init__(self, folder: str) -> None:
        self.place = folder

    def process(self, task: DocumentBatch) -> DocumentBatch:
        return task

    def fingerprint_files(self) -> list[str]:
        return [f"{self.place}/hidden.bin"]


def tagged(text: str, table: str) -> str:
    return text


class SideLog(ProcessingStage[DocumentBatch, DocumentBatch]):
    def __init__(self, path: str) -> None:
        self.path = path

    def process(self, task: DocumentBatch) -> DocumentBatch:
        with open(self.path, "a") as file:
            file.write("a batch\n")
        return task


@pytest.fixture
def table(tmp_path: Path) -> Path:
    (tmp_path / "table.txt").write_text("alpha beta\n")
    (tmp_path / "input.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in ("alpha", "gamma")))
    return tmp_path / "table.txt"


def described(stage: ProcessingStage[Any, Any]) -> dict[str, Any]:
    plain: dict[str, Any] = json.loads(json.dumps({"stages": [describe_stage(stage)]}))
    return plain


STAGES: dict[str, Callable[[Path], ProcessingStage[Any, Any]]] = {
    "an argument of a filter": lambda table: ScoreFilter(Table(str(table))),
    "an argument of one filter of several": lambda table: ScoreFilter([Table("no.txt"), Table(str(table))]),
    "in a mapping of a modifier": lambda table: Modify(Tagged({"tables": [{"x": 1}, str(table)], "n": 3})),
    "a path object": lambda table: Modify(Tagged({"table": table})),
    "an argument of a partial function": lambda table: Modify(functools.partial(tagged, table=str(table))),
}


@pytest.mark.parametrize("stage", STAGES.values(), ids=STAGES)
def test_a_file_that_an_argument_names_counts_wherever_it_stands(table, stage):
    before = described(stage(table))
    os.utime(table, (1, 1))
    assert differences(before, described(stage(table))) == [], "a small file counts by its content"
    table.write_text("alpha gama\n")
    (change,) = differences(before, described(stage(table)))
    assert "file table.txt of " in change and change.endswith("has changed")


def test_a_run_that_resumes_refuses_and_names_file_and_argument(table):
    def run() -> Any:
        reader, writer = JsonlReader(str(table.parent / "input.jsonl")), JsonlWriter(str(table.parent / "out"))
        return Pipeline("p", stages=[reader, ScoreFilter(Table(str(table))).with_(name="known"), writer]).run()

    assert run().ledger.total().kept == 1
    assert run().ledger.resumed == 1
    table.write_text("alpha gamma\n")
    with pytest.raises(OutputChanged, match=r"'known'.*file table\.txt of table has changed"):
        run()


def test_the_hook_adds_files_that_no_argument_names(tmp_path):
    stage = Look(str(tmp_path))
    missing = described(stage)
    (tmp_path / "hidden.bin").write_bytes(b"1")
    there = described(stage)
    (tmp_path / "hidden.bin").write_bytes(b"2")
    for before, now in ((missing, there), (there, described(stage))):
        (change,) = differences(before, now)
        assert change.endswith("file hidden.bin of fingerprint_files() has changed")


def test_a_large_file_counts_by_size_and_time(table, monkeypatch):
    monkeypatch.setattr(data_files, "HASHED_BYTES", 4)
    stage = ScoreFilter(Table(str(table)))
    before = described(stage)
    assert described(stage) == before
    os.utime(table, (1, 1))
    assert len(differences(before, described(stage))) == 1


def test_output_files_of_a_pipeline_do_not_count(table):
    folder = table.parent
    log, out = folder / "side.txt", folder / "out"

    def run() -> Any:
        stages = [JsonlReader(str(folder / "input.jsonl")), SideLog(str(log)), JsonlWriter(str(out))]
        return Pipeline("p", stages=stages).run()

    run()
    assert log.exists()
    assert run().ledger.resumed == 1


def test_a_folder_counts_without_the_outputs_of_runs_in_it_and_within_bounds(table, monkeypatch):
    class Looks(Look):
        def __init__(self, folder: str) -> None:
            self.folder = folder

        def fingerprint_files(self) -> list[str]:
            return []

    folder = table.parent
    reader, writer = JsonlReader(str(folder / "input.jsonl")), JsonlWriter(str(folder / "out"))
    pipeline = Pipeline("p", stages=[reader, Looks(str(folder)), writer])
    pipeline.run()
    assert pipeline.run().ledger.resumed == 1
    (folder / "words").mkdir()
    (folder / "words" / "more.txt").write_text("x")
    with pytest.raises(OutputChanged, match=r"words/more\.txt of folder is new"):
        pipeline.run()
    monkeypatch.setattr(data_files, "MOST_FILES", 2)
    assert len(describe_stage(Looks(str(folder)))["files"]["folder"]) == 2


def test_columns_that_are_called_like_a_file_do_not_count(table, monkeypatch):
    monkeypatch.chdir(table.parent)
    stage = ScoreFilter(Table("no.txt"), text_field="text", score_field="words")
    before = describe_stage(stage)
    (table.parent / "text").write_text("x")
    (table.parent / "words").write_text("x")
    assert describe_stage(stage) == before


def test_a_remote_file_counts_by_its_file_information(tmp_path):
    storage = fsspec.filesystem("memory")
    storage.pipe_file("/tables/a.txt", b"one")
    stage = Modify(Tagged({}))

    class Remote(Tagged):
        def fingerprint_files(self) -> list[str]:
            return ["memory://tables/a.txt"]

    stage = Modify(Remote({}))
    before = described(stage)
    assert differences(before, described(stage)) == []
    storage.pipe_file("/tables/a.txt", b"longer")
    assert len(differences(before, described(stage))) == 1


def test_a_storage_that_may_not_be_asked_is_no_error(monkeypatch):
    pytest.importorskip("s3fs")
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    for name in ("AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE"):
        monkeypatch.setenv(name, os.devnull)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")  # nothing listens there
    fsspec.get_filesystem_class("s3").clear_instance_cache()

    class Remote(Tagged):
        def fingerprint_files(self) -> list[str]:
            return ["s3://models/weights.bin"]

    assert '["weights.bin", null, "is not there"]' in json.dumps(described(Modify(Remote({}))))
