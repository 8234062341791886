"""Accounts of documents, and runs that resume, in unusual cases."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pytest
from tests.ledger.conftest import written
from tests.ledger.test_runs import curate, run

from gristmill.errors import OutputChanged, PipelineFailed, PlanError
from gristmill.ledger.commits import CommitLog
from gristmill.ledger.entry import MOST_REASONS, Entry
from gristmill.ledger.opening import clear
from gristmill.pipeline import Pipeline
from gristmill.stages.core import ProcessingStage
from gristmill.stages.function_definitions import processing_stage
from gristmill.stages.text.filters import ScoreFilter, WordCountFilter
from gristmill.stages.text.io import JsonlReader, JsonlWriter
from gristmill.storage import Folder
from gristmill.tasks import DocumentBatch, FileBlock, FileRange
from gristmill.tasks.document import ID


@pytest.fixture
def eight(tmp_path: Path) -> Path:
    path = tmp_path / "eight.jsonl"
    path.write_text("".join(json.dumps({"id": i, "text": f"text {i}"}) + "\n" for i in range(8)))
    return path


def through(source: Path, out: Path, *stages: ProcessingStage) -> Pipeline:
    return Pipeline("small", stages=[JsonlReader(str(source)), *stages, JsonlWriter(str(out))])


def kept(out: Path) -> list[int]:
    return [json.loads(line)["id"] for path in sorted(out.glob("part-*")) for line in path.read_bytes().splitlines()]


def test_files_of_a_failed_attempt_are_removed_when_the_next_succeeds(eight, tmp_path):
    trouble = tmp_path / "trouble"
    trouble.touch()

    @processing_stage(name="moody")
    def moody(task: DocumentBatch) -> DocumentBatch:
        if trouble.exists() and 5 in task.data.column("id").to_pylist():
            raise ValueError("not today")
        return task

    out = tmp_path / "out"
    with pytest.raises(PipelineFailed):
        run(through(eight, out, moody), max_attempts=1)
    assert len(list(out.glob("part-*"))) > 1
    trouble.unlink()
    result = run(through(eight, out, moody))
    assert kept(out) == list(range(8)) and result.ledger.total().kept == 8
    assert not (out / "quarantine").exists() or not list((out / "quarantine").iterdir())


def test_a_block_whose_file_is_gone_or_cut_short_is_done_again(corpus, tmp_path):
    out = tmp_path / "out"
    run(curate(corpus, out))
    before = written(out)
    (out / "part-000000.jsonl").unlink()
    (out / "part-000001.jsonl").write_bytes(b"{}")
    result = run(curate(corpus, out))
    assert written(out) == before and result.ledger.resumed == len(result.ledger.blocks) - 2


def test_starting_over_that_is_stopped_in_the_middle_does_not_look_like_done(corpus, tmp_path, monkeypatch):
    out = tmp_path / "out"
    run(curate(corpus, out))
    before = written(out)
    removed: list[str] = []
    remove = Folder.remove

    def stop_soon(self: Folder, name: str = "") -> None:
        if len(removed) > 3:
            raise KeyboardInterrupt
        removed.append(name)
        remove(self, name)

    monkeypatch.setattr(Folder, "remove", stop_soon)
    with pytest.raises(KeyboardInterrupt):
        clear(CommitLog(Folder(out)))
    monkeypatch.undo()
    result = run(curate(corpus, out))
    assert result.ledger.resumed == 0 and written(out) == before


@pytest.mark.parametrize("done", range(12))
def test_phases_that_were_half_removed_are_removed_by_the_next_that_starts_over(tmp_path, monkeypatch, done):
    folder = Folder(str(tmp_path))
    for n, name in enumerate(("duplicates", "duplicates-2", "duplicates-3"), 1):
        for file in (
            f"_gristmill/phases/{n}/decided.json",
            f"_gristmill/phases/{n}/keys",
            f"{name}/part-000000.parquet",
        ):
            folder.write(file, b"{}")
    remove, removed = Folder.remove, []

    def stop_soon(self: Folder, name: str = "") -> None:
        if len(removed) >= done:
            raise KeyboardInterrupt
        removed.append(name)
        remove(self, name)

    monkeypatch.setattr(Folder, "remove", stop_soon)
    with suppress(KeyboardInterrupt):
        clear(CommitLog(folder))
    monkeypatch.undo()
    clear(CommitLog(folder))
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_files_of_unknown_origin_are_not_mixed_with_ours(corpus, tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "part-000007.jsonl").write_text("{}\n")
    with pytest.raises(OutputChanged, match="no log"):
        run(curate(corpus, tmp_path / "out"))


def test_an_output_below_the_input_is_refused(corpus):
    with pytest.raises(PlanError, match="write to another folder"):
        run(curate(corpus, corpus / "out"))


@processing_stage(name="thrice")
def thrice(task: DocumentBatch) -> DocumentBatch:
    table = pa.concat_tables([task.data] * 3)
    ids = [None if row >= task.num_items else ident for row, ident in enumerate(table.column(ID).to_pylist())]
    where = table.column_names.index(ID)
    task.data = table.set_column(where, ID, pa.array(ids, pa.large_string()))
    return task


@processing_stage(name="thrice_and_less")
def thrice_and_less(task: DocumentBatch) -> DocumentBatch:
    task.data = pa.concat_tables([task.data] * 3)
    return task.keep([row % 3 == 0 for row in range(task.num_items)], reason="too many")


def test_documents_that_a_users_stage_makes_are_counted(eight, tmp_path):
    whole = run(through(eight, tmp_path / "out", thrice)).ledger.total()
    assert (whole.documents, whole.made, whole.kept) == (8, 16, 24)
    whole = run(through(eight, tmp_path / "less", thrice_and_less)).ledger.total()
    assert (whole.documents, whole.made, whole.kept, whole.dropped.total()) == (8, 16, 8, 16)


class Halfway(ProcessingStage[DocumentBatch, DocumentBatch]):
    split_on_failure = False

    def process(self, task: DocumentBatch):
        for row in range(task.num_items):
            if row == 6:
                raise ValueError("tired")
            yield DocumentBatch(task.data.slice(row, 1).replace_schema_metadata({"big": "x" * 100_000}))


def test_documents_passed_on_before_their_task_failed_count_once(eight, tmp_path):
    stage = Halfway().with_(max_attempts=1)
    result = run(through(eight, tmp_path / "out", stage), ignore_failures=True, object_store_memory="1MB")
    whole = result.ledger.total()
    assert whole.kept == len(kept(tmp_path / "out")) and whole.kept + whole.errored.total() == 8
    assert not result.ledger.problems


def test_blocks_without_names_get_their_place_as_name(eight, tmp_path):
    other = tmp_path / "other.jsonl"
    other.write_bytes(eight.read_bytes())
    tasks = [FileBlock([FileRange(str(path), 0, path.stat().st_size)]) for path in (eight, other)]
    stages = [JsonlReader(str(eight)), JsonlWriter(str(tmp_path / "out"))]
    Pipeline("given", stages=stages).run(initial_tasks=tasks)
    assert len(kept(tmp_path / "out")) == 16


@processing_stage(name="as_text")
def as_text(task: DocumentBatch) -> DocumentBatch:
    column = task.data.column("id")
    task = task.keep([i != 1 for i in column.to_pylist()], reason="one")
    where = task.data.column_names.index("id")
    ids = [f"n{i}" for i in task.data.column("id").to_pylist()]
    task.data = task.data.set_column(where, "id", pa.array(ids))
    return task


@processing_stage(name="no_twos")
def no_twos(task: DocumentBatch) -> DocumentBatch:
    return task.keep([i != "n2" for i in task.data.column("id").to_pylist()], reason="two")


def test_documents_dropped_before_and_after_a_column_changed_its_type(eight, tmp_path):
    run(through(eight, tmp_path / "out", as_text, no_twos))
    lines = [
        json.loads(x) for path in (tmp_path / "out" / "excluded").iterdir() for x in path.read_bytes().splitlines()
    ]
    assert [(line["id"], line["excluded_reason"]) for line in lines] == [(1, "one"), ("n2", "two")]


def test_many_bad_records_make_a_small_account(tmp_path):
    path = tmp_path / "bad.jsonl"
    path.write_bytes(b"".join(b'{"text": "%s\xff"}\n' % (b"x" * (i % 300)) for i in range(3000)))
    result = run(through(path, tmp_path / "out"), allow_empty=True)
    whole = result.ledger.total()
    assert whole.errored.total() == 3000 and len(whole.errored) == 1
    entries = sum(len(p.read_bytes().splitlines()) for p in (tmp_path / "out" / "quarantine").iterdir())
    assert entries == 3000


def test_reasons_beyond_the_limit_count_together():
    whole = Entry()
    for n in range(5):
        whole.add(Entry(dropped={("stage", f"reason {n}-{i}"): 1 for i in range(600)}))  # type: ignore[arg-type]
    assert whole.dropped.total() == 3000 and len(whole.dropped) <= MOST_REASONS


def test_a_stage_of_ours_that_cannot_work_is_a_failure_and_the_account_balances(tmp_path):
    path = tmp_path / "numbers.jsonl"
    path.write_text('{"text": "words", "price": 1.5}\n' * 4)
    stages = [
        JsonlReader(str(path)),
        ScoreFilter(WordCountFilter(min_words=1), text_field="price"),
        ScoreFilter(WordCountFilter(min_words=1)),
        JsonlWriter(str(tmp_path / "out")),
    ]
    with pytest.raises(PipelineFailed, match="'price' holds double"):
        run(Pipeline("wrong", stages=stages))


def test_two_runs_do_not_write_to_one_folder_at_a_time(eight, tmp_path):
    log = CommitLog(Folder(tmp_path / "out"))
    log.lock()
    with pytest.raises(OutputChanged, match="another run is writing"):
        run(through(eight, tmp_path / "out"), fresh=True)
    log.close()
    assert run(through(eight, tmp_path / "out"), fresh=True).ok


def test_a_missing_field_is_reported_before_anything_starts(eight, tmp_path):
    out = str(tmp_path / "out")
    with pytest.raises(PlanError, match="have no field 'content'; they have: id, text"):
        Pipeline("x", stages=[JsonlReader(str(eight), text_field="content"), JsonlWriter(out)]).run()
    misspelt = ScoreFilter(WordCountFilter(), text_field="txet")
    with pytest.raises(PlanError, match="Did you mean 'text'"):
        Pipeline("x", stages=[JsonlReader(str(eight)), misspelt, JsonlWriter(out)]).run()
    assert not Path(out).exists()


def test_an_output_that_cannot_be_written_is_an_error_in_words(eight, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(PlanError, match="cannot be written to"):
        run(through(eight, tmp_path / "file"))
