"""The columns that a user's stage returns are written, in every format."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.stages.text.io.test_round_trip import documents, new_work

from gristmill.backends.step_runner import StepRunner
from gristmill.pipeline import Pipeline
from gristmill.stages.core import ProcessingStage
from gristmill.stages.function_definitions import processing_stage
from gristmill.stages.text.filters import ScoreFilter, WordCountFilter
from gristmill.stages.text.io import JsonlReader, JsonlWriter, ParquetWriter
from gristmill.tasks import DocumentBatch
from gristmill.tasks.document import ID, RAW

Stage = ProcessingStage[DocumentBatch, DocumentBatch]

LINES = [
    b'{"email": "a@b.c", "text": "one two  three",  "n": 1.50, "meta": {"k":  [1, 2]}}\n',
    b'{"text": "four", "email": "d@e.f", "meta": {}}\n',
    b'{"n": 2,"text": "five six seven eight"}\n',
]


class DropEmail(Stage):
    def process(self, task):
        task.data = task.data.drop_columns(["email"])
        return task


class DropEmailInPandas(Stage):
    def outputs(self):
        return ["data"], ["text"]

    def process(self, task):
        return DocumentBatch(data=task.to_pandas().drop(columns="email"), task_id=task.task_id)


class RenameEmail(Stage):
    def outputs(self):
        return ["data"], []

    def process(self, task):
        table = task.data
        task.data = table.rename_columns(["mail" if name == "email" else name for name in table.column_names])
        return task


@processing_stage
def drop_by_function(task: DocumentBatch) -> DocumentBatch:
    task.data = task.data.drop_columns(["email"])
    return task


class DropAndExclude(Stage):
    def process(self, task):
        task.data = task.data.drop_columns(["email"])
        return task.keep([len(text) > 10 for text in task.data["text"].to_pylist()], reason="short")


def run(work: Any, *stages: Any, writer: Any = None) -> bytes:
    work.put("a.jsonl", b"".join(LINES))
    out = work.folder / "out"
    Pipeline("columns", stages=[JsonlReader(str(work.source)), *stages, writer or JsonlWriter(out)]).run()
    return content(out)


def content(folder: Path, pattern: str = "part-*") -> bytes:
    return b"".join(path.read_bytes() for path in sorted(folder.glob(pattern)))


WITHOUT_EMAIL = [
    b'{"text": "one two  three",  "n": 1.50, "meta": {"k":  [1, 2]}}\n',
    b'{"text": "four", "meta": {}}\n',
    LINES[2],
]


@pytest.mark.parametrize("stage", [DropEmail(), DropEmailInPandas(), drop_by_function])
def test_a_column_that_a_stage_drops_is_not_written(work, stage):
    assert run(work, stage) == b"".join(WITHOUT_EMAIL)


def test_a_renamed_column_is_written_once_under_its_new_name(work):
    assert run(work, RenameEmail()) == (
        b'{"text": "one two  three",  "n": 1.50, "meta": {"k":  [1, 2]},"mail":"a@b.c"}\n'
        b'{"text": "four", "meta": {},"mail":"d@e.f"}\n' + LINES[2]
    )


def test_the_same_columns_are_in_parquet_and_in_jsonl(work):
    run(work, RenameEmail(), writer=ParquetWriter(work.folder / "out"))
    assert set(pq.read_table(work.folder / "out" / "part-000000.parquet").column_names) == {"text", "n", "meta", "mail"}


def test_excluded_documents_are_as_they_were_when_they_were_excluded(work):
    """One is excluded before the column is dropped, one by the stage that drops it, one after."""
    stages = [ScoreFilter(WordCountFilter(2), invert=False), DropAndExclude(), ScoreFilter(WordCountFilter(4))]
    assert run(work, *stages) == LINES[2]
    excluded = [json.loads(line) for line in content(work.folder / "out" / "excluded").splitlines()]
    by_reason = {document["text"]: document for document in excluded}
    assert by_reason["four"]["email"] == "d@e.f"
    assert "email" not in by_reason["one two  three"]
    run_again = new_work()
    assert run(run_again, DropAndExclude(), ScoreFilter(WordCountFilter(1))) == WITHOUT_EMAIL[0] + LINES[2]
    (document,) = [json.loads(line) for line in content(run_again.folder / "out" / "excluded").splitlines()]
    assert document["text"] == "four" and "email" not in document


def test_a_column_that_comes_back_later_is_the_new_one(work):
    class Again(Stage):
        def process(self, task):
            task.data = task.data.append_column("email", pa.array(["hidden"] * task.num_items))
            return task

    written = [json.loads(line) for line in run(work, DropEmail(), Again()).splitlines()]
    assert [document["email"] for document in written] == ["hidden"] * 3
    assert b"@" not in content(work.folder / "out")


def test_documents_that_a_stage_makes_without_a_line_stay_so(work):
    class Twice(Stage):
        def process(self, task):
            made = task.data.drop_columns(["email"])
            made = made.set_column(made.column_names.index(RAW), RAW, pa.nulls(made.num_rows, pa.large_binary()))
            made = made.set_column(made.column_names.index(ID), ID, pa.nulls(made.num_rows, pa.large_string()))
            task.data = pa.concat_tables([task.data.drop_columns(["email"]), made])
            return task

    written = run(work, Twice()).splitlines(keepends=True)
    assert written[:3] == WITHOUT_EMAIL
    assert all("email" not in json.loads(line) for line in written[3:]) and len(written) == 6


def test_a_stage_that_changes_more_than_it_declares_is_written_as_it_returned(work):
    """The columns in a user stage's outputs() do not hide what it did."""

    class Declares(Stage):
        def outputs(self):
            return ["data"], ["n"]

        def process(self, task):
            table = task.data
            field = table.schema.field("text")
            task.data = table.set_column(
                table.column_names.index("text"), field, pa.array(["changed"] * table.num_rows, pa.large_string())
            )
            return task

    assert [json.loads(line)["text"] for line in run(work, Declares()).splitlines()] == ["changed"] * 3


def test_a_stage_that_runs_on_batches_drops_columns_too(work):
    class InBatches(Stage):
        batch_size = 4

        def process(self, task):
            raise AssertionError

        def process_batch(self, tasks):
            return [DropEmail().process(task) for task in tasks]

    assert run(work, InBatches()) == b"".join(WITHOUT_EMAIL)


@given(st.lists(documents(), min_size=1, max_size=5), st.sets(st.sampled_from(["id", "n", "when", "größe", "m"])))
@settings(max_examples=60, deadline=None)
def test_whatever_is_dropped_is_gone_and_the_rest_stands_as_it_stood(lines, names):
    class Drop(Stage):
        def process(self, task):
            task.data = task.data.drop_columns([name for name in names if name in task.columns])
            return task

    work = new_work()
    reader = JsonlReader(work.put("a.jsonl", b"\n".join(lines)))
    writer = JsonlWriter(work.folder / "out")
    stages = [reader.linked([], [Drop(), writer]), Drop(), writer.linked([reader, Drop()], [])]
    for _ in StepRunner(stages).run(reader.source()):
        pass
    written = content(work.folder / "out").split(b"\n")[:-1]
    assert len(written) == len(lines)
    for line, now in zip(lines, written, strict=True):
        before = json.loads(line)
        assert json.loads(now) == {key: value for key, value in before.items() if key not in names}
        if not names.intersection(before):
            assert now == line
