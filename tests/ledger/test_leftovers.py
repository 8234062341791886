"""Workers that are killed while they write: nothing unfinished is left of them when the run has ended."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest
from tests.ledger.conftest import written
from tests.stages.deduplication.corpora import execute

from gristmill.errors import PipelineFailed
from gristmill.pipeline.phases import barrier_context
from gristmill.stages.core import ProcessingStage
from gristmill.stages.deduplication import records
from gristmill.stages.deduplication.exact import ExactDeduplication
from gristmill.stages.text.filters import ScoreFilter, WordCountFilter
from gristmill.stages.text.io import JsonlReader, JsonlWriter
from gristmill.tasks import DocumentBatch

KINDS = (".keys", ".docs", "duplicates", "excluded", "quarantine", "part-")


def die_while_writing(marks: str) -> None:
    """From now on this process ends itself between the writing of a file and its renaming: once for each kind."""
    assert os.getpid() != int((Path(marks).parent / "driver").read_text()), "this is the process of the test"
    rename = getattr(os.replace, "plain", os.replace)

    def replace(temporary: str, path: str) -> None:
        kind = next((kind for kind in KINDS if kind in os.path.relpath(path, Path(marks).parent / "out")), "other")
        mark = Path(marks) / kind
        if not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        rename(temporary, path)

    replace.plain = rename  # type: ignore[attr-defined]
    os.replace = replace  # type: ignore[assignment]


class Dying(ProcessingStage[DocumentBatch, DocumentBatch]):
    """Lets the processes that it runs in end while they write."""

    def __init__(self, marks: str, fails: bool = False) -> None:
        self.name = "dying"
        self.marks = marks
        self.fails = fails

    def inputs(self) -> tuple[list[str], list[str]]:
        return ["data"], []

    def setup(self, worker_metadata=None) -> None:
        if self.marks:
            die_while_writing(self.marks)

    def process(self, task: DocumentBatch) -> DocumentBatch:
        if self.fails and len(os.listdir(self.marks)) > 1:
            raise ValueError("enough")
        return task


class DiesWhileWriting:
    """The same for stages that write: their processes need not be among those of `Dying`."""

    marks = ""

    def setup(self, worker_metadata=None) -> None:
        super().setup(worker_metadata)  # type: ignore[misc]  # of the stage beside it
        if self.marks:
            die_while_writing(self.marks)


class DyingKeys(DiesWhileWriting, ExactDeduplication):
    pass


class DyingWriter(DiesWhileWriting, JsonlWriter):
    pass


class DyingRecords(records.DocumentRecords):
    def process(self, task: records.RecordTask) -> records.RecordTask:
        marks = Path(self.records.root).parent.parent / "marks"
        if marks.exists():
            die_while_writing(str(marks))
        return super().process(task)


def unfinished(out: Path) -> list[Path]:
    return [path for path in out.rglob(".*") if path.name.startswith(".tmp-")]


@pytest.fixture
def marks(tmp_path: Path) -> Path:
    folder = tmp_path / "killed/marks"
    folder.mkdir(parents=True)
    (folder.parent / "driver").write_text(str(os.getpid()))
    return folder


@pytest.mark.parametrize("barrier", [False, True])
def test_killed_workers_leave_no_unfinished_file(corpus, tmp_path, marks, barrier, monkeypatch):
    monkeypatch.setattr(barrier_context, "HERE_BYTES", 0)
    monkeypatch.setattr(records, "ROWS_AT_ONCE", 50)  # several tasks: a single one is done in the driver
    monkeypatch.setattr(records, "DocumentRecords", DyingRecords)
    with (corpus / "a.jsonl").open("a") as file:
        file.write(json.dumps({"id": "twin", "text": "the same words " * 50, "n": 0}) + "\n" * 2)
        file.write(json.dumps({"id": "other", "text": "the same words " * 50, "n": 0}) + "\n")

    def run(out: Path, dies: str) -> None:
        middle, writer = [DyingKeys()] if barrier else [], DyingWriter(str(out))
        for stage in (*middle, writer):
            stage.marks = dies
        front = [JsonlReader(str(corpus), blocksize="30KB"), Dying(dies), ScoreFilter(WordCountFilter(min_words=30))]
        execute(*front, *middle, writer, workers=2)

    run(tmp_path / "whole/out", "")
    run(marks.parent / "out", str(marks))
    died = {path.name for path in marks.iterdir()}
    wanted = {"part-", "excluded"} if not barrier else {".keys", ".docs", "duplicates"}
    assert wanted <= died
    assert unfinished(marks.parent / "out") == []
    assert written(marks.parent / "out") == written(tmp_path / "whole/out")


def test_a_run_that_fails_leaves_no_unfinished_file_either(corpus, tmp_path, marks):
    front = [JsonlReader(str(corpus), blocksize="30KB"), Dying(str(marks), fails=True)]
    words = ScoreFilter(WordCountFilter(min_words=30))
    with pytest.raises(PipelineFailed):
        execute(*front, words, JsonlWriter(str(marks.parent / "out")), workers=2)
    assert list(marks.iterdir()) and unfinished(marks.parent / "out") == []
