"""One pipeline with stages before, between and behind those that need all documents."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from tests.stages.deduplication.corpora import edited, execute, lines_of, records_of, texts, write_jsonl, written
from tests.stages.deduplication.in_process import InProcess

from gristmill.cli.main import main
from gristmill.errors import OutputChanged, PipelineFailed, PlanError
from gristmill.pipeline import Pipeline
from gristmill.stages.deduplication.exact import ExactDeduplication
from gristmill.stages.deduplication.fuzzy import FuzzyDeduplication
from gristmill.stages.function_definitions import processing_stage
from gristmill.stages.text.filters import Score, ScoreFilter, WordCountFilter
from gristmill.stages.text.io import JsonlReader, JsonlWriter, ParquetReader, ParquetWriter
from gristmill.tasks import DocumentBatch


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    """Three files of 40 documents: of each text two that are equal, one that is nearly so, and a short one."""
    folder = tmp_path / "in"
    for name, seed in (("a", 1), ("b", 2), ("c", 3)):
        found = []
        for n, text in enumerate(texts(seed, 10, 30 + 5 * seed)):
            versions = [text, text, edited(text, n), f"{name} {n}"]
            found += [{"text": version, "n": 4 * n + k, "of": name} for k, version in enumerate(versions)]
        write_jsonl(folder / f"{name}.jsonl", found)
        with (folder / f"{name}.jsonl").open("a") as file:
            file.write('{"text": "broken\n{"n": 1}\n')
    return folder


def fuzzy(**arguments) -> FuzzyDeduplication:
    """With bands that texts meet in for sure which differ in one word."""
    return FuzzyDeduplication(num_bands=40, minhashes_per_band=4, **arguments)


def words(least: int, most: int = 10**6) -> ScoreFilter:
    return ScoreFilter(WordCountFilter(min_words=least, max_words=most))


def curate(corpus: Path, out: Path, *behind, blocksize=1500) -> list:
    """Short ones go before the duplicates, long ones (those of the third file) after them."""
    front = [JsonlReader(str(corpus), blocksize=blocksize), words(5), fuzzy()]
    return [*front, words(5, 42), *behind, JsonlWriter(str(out))]


def check_balance(result, documents: int = 126) -> None:
    whole = result.ledger.total()
    assert whole.documents == documents
    assert whole.documents + whole.made == whole.kept + whole.dropped.total() + whole.merged + whole.errored.total()
    assert sum(account.read for account in result.ledger.files.values()) == documents
    for account in result.ledger.files.values():
        assert account.balances
    assert sum(account.kept for account in result.ledger.files.values()) == whole.kept


def test_documents_are_accounted_for_across_the_barrier_by_file_and_by_stage(corpus, tmp_path):
    result = execute(*curate(corpus, tmp_path / "out"), workers=2)
    check_balance(result)
    whole = result.ledger.total()
    assert {stage: n for (stage, _), n in whole.dropped.items()} == {
        "ScoreFilter": 30,
        "FuzzyDeduplication": 60,
        "ScoreFilter (2)": 10,
    }
    assert whole.errored.total() == 6 and whole.kept == 20
    assert sorted(result.ledger.files) == [str(corpus / f"{name}.jsonl") for name in "abc"]
    kept, dropped = lines_of(tmp_path / "out"), lines_of(tmp_path / "out", "excluded")
    assert [(d["of"], d["n"]) for d in kept] == [(name, 4 * n) for name in "ab" for n in range(10)]
    assert len(dropped) == 100 and len({(d["of"], d["n"]) for d in kept + dropped}) == 120
    by_stage = {stage: {d["n"] % 4 for d in dropped if d["excluded_stage"] == stage} for stage, _ in whole.dropped}
    assert by_stage == {"ScoreFilter": {3}, "FuzzyDeduplication": {1, 2}, "ScoreFilter (2)": {0}}
    assert all(0 < d["excluded_score"] <= 1 for d in dropped if d["excluded_stage"] == "FuzzyDeduplication")
    bad = lines_of(tmp_path / "out", "quarantine")
    assert len(bad) == 6 and len({(b["file"], b["position"]) for b in bad}) == 6
    shown = result.summary()
    order = [shown.index(name) for name in ("ScoreFilter", "FuzzyDeduplication", "ScoreFilter (2)", "kept ")]
    assert order == sorted(order) and "near duplicate" in shown


def test_the_source_is_read_again_where_nothing_was_done_before_the_cut_and_bad_records_count_once(corpus, tmp_path):
    result = execute(JsonlReader(str(corpus)), ExactDeduplication(), words(5), JsonlWriter(str(tmp_path / "out")))
    check_balance(result)
    assert result.ledger.total().errored.total() == 6 == len(lines_of(tmp_path / "out", "quarantine"))
    assert not list((tmp_path / "out/_gristmill").rglob("*.docs"))


def test_lines_that_were_no_documents_are_none_when_they_are_read_again(corpus, tmp_path):
    """Files with bad lines are parsed again, those without are not; the account and the output say the same."""
    (corpus / "clean.jsonl").write_bytes(b'{"text": "clean", "n": 0}\n' * 2 + b'{"text": "other", "n": 4}\n')
    (corpus / "blank.jsonl").write_bytes(b'{"text": "blank", "n": 0}\n \n{"text": "blank", "n": 0}\n\n')
    result = execute(JsonlReader(str(corpus)), ExactDeduplication(), JsonlWriter(str(tmp_path / "out")))
    check_balance(result, documents=120 + 6 + 3 + 2)
    assert result.ledger.total().errored.total() == 6 == len(lines_of(tmp_path / "out", "quarantine"))
    kept = [line["text"] for line in lines_of(tmp_path / "out")]
    assert [text for text in kept if text in ("clean", "other", "blank")] == ["blank", "clean", "other"]
    assert len(kept) == len(set(kept)) == result.ledger.total().kept


def test_two_barriers_have_separate_records(corpus, tmp_path):
    stages = [ExactDeduplication(), words(5), fuzzy()]
    result = execute(JsonlReader(str(corpus), blocksize=1500), *stages, JsonlWriter(str(tmp_path / "out")))
    check_balance(result)
    dropped = {stage: n for (stage, _), n in result.ledger.total().dropped.items()}
    assert dropped == {"ExactDeduplication": 30, "ScoreFilter": 30, "FuzzyDeduplication": 30}
    by_id = places_of(corpus)
    for folder, rest in (("duplicates", 1), ("duplicates-2", 2)):
        rows = records_of(tmp_path / "out", folder)
        assert len(rows) == 30 and {by_id[row["id"]]["n"] % 4 for row in rows} == {rest}
        assert {by_id[row["survivor"]]["n"] % 4 for row in rows} == {0}
    assert [d["n"] % 4 for d in lines_of(tmp_path / "out")] == [0] * 30
    assert len(lines_of(tmp_path / "out", "excluded")) == 90


def places_of(corpus: Path) -> dict[str, dict]:
    found = {}
    for path in sorted(corpus.glob("*.jsonl")):
        at = 0
        for line in path.read_bytes().splitlines(keepends=True):
            if line.startswith(b'{"text": "') and line.endswith(b"}\n"):
                found[f"{path}#{at}"] = json.loads(line)
            at += len(line)
    return found


@processing_stage(name="halves")
def halves(task: DocumentBatch) -> list[DocumentBatch]:
    middle = task.num_items // 2
    return [task.slice(0, middle), task.slice(middle, task.num_items)]


def test_batches_that_a_stage_cuts_between_two_barriers_do_not_get_lost(corpus, tmp_path):
    """Also where a file is one stream of batches, so that parts are more than blocks."""
    for path in list(corpus.iterdir()):
        write_jsonl(corpus / f"{path.stem}.jsonl.gz", [d for d in places_of(corpus).values() if d["of"] == path.stem])
    for path in corpus.glob("*.jsonl"):
        path.unlink()
    stages = [halves, ExactDeduplication(), halves, fuzzy(), halves]
    result = execute(JsonlReader(str(corpus), blocksize=3000), *stages, JsonlWriter(str(tmp_path / "out")))
    check_balance(result, 120)
    assert [(d["of"], d["n"]) for d in lines_of(tmp_path / "out")] == [
        (name, n) for name in "abc" for n in range(40) if n % 4 in (0, 3)
    ]
    assert {name: account.kept for name, account in result.ledger.files.items()} == {
        str(corpus / f"{name}.jsonl.gz"): 20 for name in "abc"
    }


@processing_stage(name="only a")
def only_a(task: DocumentBatch) -> DocumentBatch | None:
    return task if "a" in task.data.column("of").to_pylist() else None


def test_documents_dropped_with_their_whole_batch_are_still_listed_after_a_second_run(corpus, tmp_path):
    def run():
        front = [JsonlReader(str(corpus)), only_a, ExactDeduplication()]
        return execute(*front, JsonlWriter(str(tmp_path / "out")))

    check_balance(run())
    before = written(tmp_path / "out")
    assert len(lines_of(tmp_path / "out", "excluded")) == 80 + 10
    check_balance(run())
    assert written(tmp_path / "out") == before


@processing_stage(name="picky")
def picky(task: DocumentBatch) -> DocumentBatch:
    if 8 in task.data.column("n").to_pylist():
        raise ValueError("cannot stand eight")
    return task


@pytest.mark.parametrize("front", [True, False])
def test_a_document_that_a_stage_fails_on_is_set_aside_on_either_side_of_the_cut(corpus, tmp_path, front):
    reader, writer = JsonlReader(str(corpus), blocksize=2500), JsonlWriter(str(tmp_path / "out"))
    stages = [picky, fuzzy()] if front else [words(5), fuzzy(), picky]
    with pytest.raises(PipelineFailed, match="cannot stand eight"):
        execute(reader, *stages, writer)
    result = execute(reader, *stages, writer, ignore_failures=True)
    check_balance(result)
    failed = [b for b in lines_of(tmp_path / "out", "quarantine") if "cannot stand eight" in b["reason"]]
    assert sorted(json.loads(b["raw"])["of"] for b in failed) == ["a", "b", "c"]
    assert all(json.loads(b["raw"])["n"] == 8 and b["stage"] == "picky" for b in failed)
    assert 8 not in {d["n"] for d in lines_of(tmp_path / "out")}


def test_files_read_in_one_block_have_one_account(corpus, tmp_path):
    """Also where of one of them nothing came as far as the cut."""
    write_jsonl(corpus / "b.jsonl", [{"text": "short", "n": n} for n in range(42)])
    reader = JsonlReader(str(corpus), files_per_partition=2)
    result = execute(reader, words(5), fuzzy(), JsonlWriter(str(tmp_path / "out")))
    check_balance(result)
    assert len(result.ledger.files) == 2
    a, b, c = (str(corpus / f"{name}.jsonl") for name in "abc")
    assert {name: account.read for name, account in result.ledger.files.items()} == {f"{a} to {b} (2 files)": 84, c: 42}


def test_scores_that_stages_made_before_the_cut_rank_documents_and_are_written(corpus, tmp_path):
    front = [JsonlReader(str(corpus)), Score(WordCountFilter(), score_field="words")]
    barrier = fuzzy(survivor="best", score_field="words")
    execute(*front, barrier, JsonlWriter(str(tmp_path / "out")))
    assert all(d["words"] == len(d["text"].split()) for d in lines_of(tmp_path / "out"))
    assert len(lines_of(tmp_path / "out")) == 60


def test_a_pipeline_of_yaml_is_the_same_pipeline(corpus, tmp_path):
    pipeline = Pipeline("curate", stages=curate(corpus, tmp_path / "out"))
    text = pipeline.to_yaml()
    again = Pipeline.from_yaml(text)
    assert again.to_yaml() == text
    pipeline.run(InProcess())
    resumed = again.run(InProcess())  # nothing has changed
    assert resumed.ledger.resumed and resumed.ledger.total().kept == 20


def test_one_yaml_runs_from_the_command_line_and_is_shown_before(corpus, tmp_path, capsys):
    path = tmp_path / "curate.yaml"
    path.write_text(Pipeline("curate", stages=curate(corpus, tmp_path / "out")).to_yaml())
    assert main(["run", str(path), "--dry-run"]) == 0
    shown = capsys.readouterr().out
    assert "FuzzyDeduplication" in shown and str(tmp_path / "out") in shown and not (tmp_path / "out").exists()
    assert main(["plan", str(path)]) == 0
    assert "FuzzyDeduplication" in capsys.readouterr().out
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, "-m", "gristmill.cli.main", "run", str(path), "--view", "off", "--cpus", "2"]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    assert "near duplicate" in ended.stdout and "ScoreFilter (2)" in ended.stdout
    assert "estimated memory" in ended.stderr and len(lines_of(tmp_path / "out")) == 20


def test_plan_and_describe_show_the_stage(corpus, tmp_path):
    pipeline = Pipeline("curate", stages=curate(corpus, tmp_path / "out"))
    assert "cannot run" not in pipeline.describe() and "FuzzyDeduplication" in pipeline.describe()
    assert any("FuzzyDeduplication" in step.name for step in pipeline.plan().steps)


def test_a_pipeline_without_reader_or_writer_is_refused_before_anything_is_done(corpus, tmp_path):
    reader, writer = JsonlReader(str(corpus)), JsonlWriter(str(tmp_path / "out"))
    with pytest.raises(PlanError, match="needs a writer"):
        execute(reader, ExactDeduplication())
    batch = DocumentBatch(pa.table({"text": ["a", "a"]}))
    with pytest.raises(PlanError, match="initial_tasks"):
        Pipeline("p", stages=[ExactDeduplication(), writer]).run(InProcess(), [batch])
    with pytest.raises(PlanError, match="begin the pipeline with a reader"):
        execute(ExactDeduplication(), writer)
    with pytest.raises(PlanError, match="begin the pipeline with a reader"):
        execute(JsonlReader(), ExactDeduplication(), writer)
    assert not (tmp_path / "out").exists()


def test_the_input_cannot_be_the_output_and_the_output_of_another_run_is_seen_first(corpus, tmp_path):
    with pytest.raises(PlanError, match="write to another folder"):
        execute(JsonlReader(str(corpus / "a.jsonl")), ExactDeduplication(), JsonlWriter(str(corpus)))
    assert not (corpus / "_gristmill").exists()
    out = tmp_path / "out"
    execute(JsonlReader(str(corpus)), JsonlWriter(str(out)))
    with pytest.raises(OutputChanged, match="another run"):
        execute(JsonlReader(str(corpus)), ExactDeduplication(), JsonlWriter(str(out)))
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts/part-000000.jsonl").write_text("{}\n")
    with pytest.raises(OutputChanged, match="no log of a run"):
        execute(JsonlReader(str(corpus)), ExactDeduplication(), JsonlWriter(str(tmp_path / "parts")))
    with pytest.raises(PlanError, match="cannot be written to"):
        execute(
            JsonlReader(str(corpus)), ExactDeduplication(), JsonlWriter(str(tmp_path / "parts/part-000000.jsonl/out"))
        )
    assert not (out / "_gristmill/phases").exists() and not (tmp_path / "parts/_gristmill/phases").exists()


def test_a_run_that_another_version_began_is_refused_if_gristmill_itself_has_changed(corpus, tmp_path):
    stages = [JsonlReader(str(corpus)), ExactDeduplication(), JsonlWriter(str(tmp_path / "out"))]
    execute(*stages)
    file = tmp_path / "out/_gristmill/run.json"
    run = json.loads(file.read_text())
    run["stages"][1]["code"] = "of another version"
    file.write_text(json.dumps(run))
    with pytest.raises(OutputChanged, match="'ExactDeduplication': gristmill's own code of it has changed"):
        execute(*stages)


def test_two_runs_do_not_write_to_one_folder_at_the_same_time(corpus, tmp_path):
    """Not even while the first one is between its phases."""
    refused = []

    class Meddled(ExactDeduplication):
        def decide(self, context):
            with pytest.raises(OutputChanged, match="another run is writing") as error:
                execute(JsonlReader(str(corpus)), ExactDeduplication(), JsonlWriter(str(tmp_path / "out")))
            refused.append(error)
            super().decide(context)

    execute(JsonlReader(str(corpus)), Meddled(), JsonlWriter(str(tmp_path / "out")))
    assert refused and len(lines_of(tmp_path / "out")) == 90


def test_an_output_is_an_input_without_its_records(corpus, tmp_path):
    stages = [ExactDeduplication(), words(5), fuzzy()]
    execute(JsonlReader(str(corpus)), *stages, ParquetWriter(str(tmp_path / "one")))
    assert len(records_of(tmp_path / "one")) == 30 == len(records_of(tmp_path / "one", "duplicates-2"))
    result = execute(ParquetReader(str(tmp_path / "one")), ExactDeduplication(), JsonlWriter(str(tmp_path / "two")))
    whole = result.ledger.total()
    assert (whole.documents, whole.kept, whole.errored.total()) == (30, 30, 0)


# Little to do ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("barrier", [ExactDeduplication, FuzzyDeduplication])
def test_nothing_is_left_before_the_cut(corpus, tmp_path, barrier):
    for _ in range(2):
        result = execute(
            JsonlReader(str(corpus)), words(1000), barrier(), JsonlWriter(str(tmp_path / "out")), allow_empty=True
        )
        check_balance(result)
        whole = result.ledger.total()
        assert whole.kept == 0 and {stage for stage, _ in whole.dropped} == {"ScoreFilter"}
        assert len(lines_of(tmp_path / "out", "excluded")) == 120 and not lines_of(tmp_path / "out")


@pytest.mark.parametrize("barrier", [ExactDeduplication, lambda: fuzzy(normalize=False)])
@pytest.mark.parametrize("content", ["", '{"text": "a"}\n', '{"text": " \\n "}\n{"text": "\\t"}\n', "not JSON\n"])
def test_a_file_of_next_to_nothing(tmp_path, barrier, content):
    (tmp_path / "in").mkdir()
    (tmp_path / "in/a.jsonl").write_text(content)
    for front in ([], [words(0)]):
        out = tmp_path / f"out{len(front)}"
        result = execute(JsonlReader(str(tmp_path / "in")), *front, barrier(), JsonlWriter(str(out)), allow_empty=True)
        whole = result.ledger.total()
        lines = content.count("\n")
        assert whole.kept == content.count("text") and whole.errored.total() == lines - whole.kept
        assert len(lines_of(out)) == whole.kept and len(lines_of(out, "quarantine")) == whole.errored.total()


def test_an_empty_folder_is_reported_before_anything_is_done(tmp_path):
    (tmp_path / "in").mkdir()
    with pytest.raises(PlanError, match=str(tmp_path / "in")):
        execute(JsonlReader(str(tmp_path / "in")), ExactDeduplication(), JsonlWriter(str(tmp_path / "out")))
    assert not (tmp_path / "out").exists()
