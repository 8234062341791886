"""A second run into the same folder, runs beside each other, and what is refused before anything is written."""

import fcntl
import os
import shutil

import pyarrow as pa
import pytest
from semantic_models import planted, records, write_jsonl, write_parquet
from tests.stages.deduplication.in_process import InProcess

from gristmill.cli.main import main
from gristmill.errors import OutputChanged, PlanError
from gristmill.stages.deduplication.semantic.store import EmbeddingStore
from gristmill.stages.deduplication.semantic.workflow import SemanticDeduplicationWorkflow

DIM = 32


@pytest.fixture
def source(tmp_path):
    vectors = planted(120, DIM, copies=20)
    write_parquet(tmp_path / "in" / "a.parquet", vectors[:70])
    write_parquet(tmp_path / "in" / "b.parquet", vectors[70:], first=70)
    return tmp_path / "in"


def workflow(source, out, **options):
    arguments = {"n_clusters": 2, "eps": 0.05, "perform_removal": True, "verbose": False, **options}
    return SemanticDeduplicationWorkflow(str(source), str(out), **arguments)


def run(source, out, fresh=False, **options):
    return workflow(source, out, **options).run(InProcess(), fresh=fresh)


def files(folder):
    """Content and time of all files but for locks."""
    found = [file for file in folder.rglob("*") if file.is_file() and file.name != "lock"]
    return {str(file.relative_to(folder)): (file.read_bytes(), file.stat().st_mtime_ns) for file in found}


def documents(out):
    """Content of what users read."""
    names = ("pairwise_results/", "duplicates/", "quarantine/", "deduplicated/part", "deduplicated/excluded")
    return {name: content for name, (content, _) in files(out).items() if name.startswith(names)}


def test_a_finished_run_is_left_as_it_is(source, tmp_path):
    first = run(source, tmp_path / "out")
    before = files(tmp_path / "out")
    executor = InProcess()
    again = workflow(source, tmp_path / "out").run(executor)
    assert files(tmp_path / "out") == before
    assert executor.plans == []
    assert (again.duplicates, again.kept, again.clusters) == (first.duplicates, first.kept, first.clusters)
    assert first.duplicates >= 20
    assert again.paths == first.paths
    assert again.summary().endswith("all of it was done before")


@pytest.mark.parametrize(
    ("other", "words"),
    [
        ({"eps": 0.2}, r"arguments\.eps was 0\.05, now it is 0\.2"),
        ({"eps": None, "perform_removal": False}, r"arguments\.eps was 0\.05, now it is null"),
        ({"which_to_keep": "first"}, r'which_to_keep was "hard", now it is "first"'),
    ],
)
def test_other_arguments_are_refused_and_nothing_is_touched(source, tmp_path, other, words):
    run(source, tmp_path / "out")
    before = files(tmp_path / "out")
    with pytest.raises(OutputChanged, match=words):
        run(source, tmp_path / "out", **other)
    assert files(tmp_path / "out") == before


def test_another_input_is_refused_and_nothing_is_touched(source, tmp_path):
    run(source, tmp_path / "out")
    before = files(tmp_path / "out")
    write_parquet(source / "c.parquet", planted(5, DIM, copies=0), first=120)
    with pytest.raises(OutputChanged, match=r"input .*c\.parquet is new"):
        run(source, tmp_path / "out")
    assert files(tmp_path / "out") == before


def test_fresh_starts_over_and_keeps_files_of_others(source, tmp_path):
    out = tmp_path / "out"
    run(source, out, keep_cache=True)
    others = [out / "notes.txt", out / "deduplicated" / "notes.txt", out / "duplicates" / "notes.txt"]
    for file in others:
        file.write_text("mine")
    run(source, out, fresh=True, eps=None, perform_removal=False)
    assert [file.read_text() for file in others] == ["mine"] * 3
    assert [file.name for file in (out / "deduplicated").rglob("*") if file.is_file()] == ["notes.txt"]
    assert [file.name for file in (out / "duplicates").iterdir()] == ["notes.txt"]
    run(source, tmp_path / "other", eps=None, perform_removal=False)
    found = documents(out)
    for file in others:
        found.pop(str(file.relative_to(out)), None)
    assert found == documents(tmp_path / "other")
    run(source, out, fresh=True)  # with removal, which takes only its own records for records
    assert [file.read_text() for file in others] == ["mine"] * 3


def test_files_without_a_log_are_refused(source, tmp_path):
    foreign = tmp_path / "out" / "duplicates" / "clusters-00000000-00000003.00000.parquet"
    foreign.parent.mkdir(parents=True)
    foreign.write_text("of another program")
    for fresh in (False, True):
        with pytest.raises(OutputChanged, match=r"duplicates/clusters-[\d.-]+\.parquet, but no log of a run"):
            run(source, tmp_path / "out", fresh=fresh)
    assert foreign.exists()


def test_files_of_the_user_with_other_names_are_left_alone(source, tmp_path):
    foreign = tmp_path / "out" / "duplicates" / "clusters-0.parquet"
    foreign.parent.mkdir(parents=True)
    foreign.write_text("notes")
    run(source, tmp_path / "out")
    run(source, tmp_path / "out", fresh=True)
    assert foreign.read_text() == "notes"


class Stopped(Exception):
    """As if the driver had been stopped."""


class StopsAt(InProcess):
    """Stops when the plan of a name is to be run, with half of its tasks done."""

    def __init__(self, name):
        super().__init__()
        self.name = name

    def execute(self, plan, initial_tasks, keep_outputs):
        if plan.name.endswith(self.name):
            tasks = list(initial_tasks)
            super().execute(plan, tasks[: len(tasks) // 2], keep_outputs)
            raise Stopped
        return super().execute(plan, initial_tasks, keep_outputs)


@pytest.mark.parametrize("cache", [None, "cache"])
@pytest.mark.parametrize(
    ("stopped_at", "left"),
    [
        ("read", ["read", "kmeans", "assign", "sort", "pairwise", "removal"]),
        ("kmeans", ["kmeans", "assign", "sort", "pairwise", "removal"]),
        ("sort", ["assign", "sort", "pairwise", "removal"]),
        ("pairwise", ["pairwise", "removal"]),
        ("removal", ["removal"]),
    ],
)
def test_a_run_that_was_stopped_resumes_after_its_last_step(source, tmp_path, stopped_at, left, cache):
    whole = run(source, tmp_path / "whole")
    options = {} if cache is None else {"cache_path": str(tmp_path / cache)}
    with pytest.raises(Stopped):
        workflow(source, tmp_path / "out", **options).run(StopsAt(stopped_at))
    executor = InProcess()
    result = workflow(source, tmp_path / "out", **options).run(executor)
    assert [plan.name.rpartition(": ")[2] for plan in executor.plans] == left
    assert documents(tmp_path / "out") == documents(tmp_path / "whole")
    assert (result.duplicates, result.kept, result.documents) == (whole.duplicates, whole.kept, whole.documents)
    assert not (tmp_path / (cache or "out") / "kmeans_results").exists()


def test_a_run_that_was_stopped_while_parts_were_dropped_resumes(source, tmp_path, monkeypatch):
    def stop(store):
        os.unlink(store.part_file(store.parts[0].task_id, "points"))
        raise Stopped

    run(source, tmp_path / "whole")
    with monkeypatch.context() as patched, pytest.raises(Stopped):
        patched.setattr(EmbeddingStore, "drop_unsorted", stop)
        run(source, tmp_path / "out")
    run(source, tmp_path / "out")
    assert documents(tmp_path / "out") == documents(tmp_path / "whole")


def test_a_cache_that_has_gone_is_made_again(source, tmp_path):
    run(source, tmp_path / "whole")
    with pytest.raises(Stopped):
        workflow(source, tmp_path / "out").run(StopsAt("pairwise"))
    shutil.rmtree(tmp_path / "out" / "kmeans_results")
    run(source, tmp_path / "out")
    assert documents(tmp_path / "out") == documents(tmp_path / "whole")


def test_a_cache_whose_output_has_gone_is_made_again(source, tmp_path):
    run(source, tmp_path / "whole")
    cache = str(tmp_path / "cache")
    with pytest.raises(Stopped):
        workflow(source, tmp_path / "out", cache_path=cache).run(StopsAt("pairwise"))
    shutil.rmtree(tmp_path / "out")
    with pytest.raises(Stopped):
        workflow(source, tmp_path / "out", cache_path=cache).run(StopsAt("read"))
    run(source, tmp_path / "out", cache_path=cache)
    assert documents(tmp_path / "out") == documents(tmp_path / "whole")


def test_files_that_have_gone_are_made_again(source, tmp_path):
    run(source, tmp_path / "out")
    before = documents(tmp_path / "out")
    for name in ("duplicates", "deduplicated"):
        next((tmp_path / "out" / name).glob("*.parquet")).unlink()
    run(source, tmp_path / "out")
    assert documents(tmp_path / "out") == before


@pytest.mark.parametrize("shared", ["out", "cache/kmeans_results"])
def test_a_second_run_beside_the_first_is_refused(source, tmp_path, shared):
    place = tmp_path / shared / "_gristmill"
    place.mkdir(parents=True)
    held = os.open(place / "lock", os.O_RDWR | os.O_CREAT)
    fcntl.flock(held, fcntl.LOCK_EX)
    try:
        for fresh in (False, True):
            with pytest.raises(OutputChanged, match=f"another run is writing to .*{shared}"):
                run(source, tmp_path / "out", fresh=fresh, cache_path=str(tmp_path / "cache"))
    finally:
        os.close(held)
    assert run(source, tmp_path / "out", cache_path=str(tmp_path / "cache")).duplicates >= 20


@pytest.mark.parametrize(("read", "written"), [("in", "in"), ("in", "in/out"), ("in", "."), ("in/a.parquet", "in")])
def test_an_output_that_is_not_apart_from_the_input_is_refused_before_anything_is_written(
    source, tmp_path, read, written
):
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(PlanError, match="write to another folder than the input's"):
        run(tmp_path / read, tmp_path / written)
    assert sorted(tmp_path.rglob("*")) == before


def test_a_cache_inside_the_input_is_refused(source, tmp_path):
    with pytest.raises(PlanError, match="write to another folder than the input's"):
        run(source, tmp_path / "out", cache_path=str(source))
    assert not (source / "kmeans_results").exists()


@pytest.mark.parametrize("folder", ["deduplicated", "."])
def test_a_document_that_was_removed_is_explained(source, tmp_path, capsys, folder):
    run(source, tmp_path / "out", which_to_keep="first", n_clusters=1)
    record = next(one for one in records(tmp_path / "out") if one["id"] == "doc-110")
    assert main(["explain", str(tmp_path / "out" / folder), "doc-110"]) == 0
    told = capsys.readouterr().out
    assert f"dropped: semantic duplicate of 'doc-10', {source}/a.parquet#10" in " ".join(told.split())
    assert f"{record['similarity']:.4g}" in told
    assert main(["explain", str(tmp_path / "out" / folder), "doc-10"]) == 0
    told = capsys.readouterr().out
    assert "documents removed for which this one stays: 1" in told
    assert told.endswith("\nkept\n")


def test_missing_records_are_reported_when_a_document_is_explained(source, tmp_path, capsys):
    run(source, tmp_path / "out")
    (tmp_path / "out" / "duplicates").rename(tmp_path / "moved")
    assert main(["explain", str(tmp_path / "out" / "deduplicated"), "doc-110"]) != 0
    assert f"{tmp_path}/out/duplicates is not there" in capsys.readouterr().err


@pytest.mark.parametrize("kind", ["parquet", "jsonl"])
def test_an_id_field_that_no_document_has_is_an_error_before_the_work(tmp_path, kind):
    vectors = planted(30, DIM, copies=5)
    if kind == "parquet":
        write_parquet(tmp_path / "in" / "a.parquet", vectors)
    else:
        rows = [{"id": i, "embeddings": vector} for i, vector in enumerate(vectors.tolist())]
        write_jsonl(tmp_path / "in" / "a.jsonl", rows)
    with pytest.raises(PlanError, match="no field 'doc_key' for their ids; they have: id, embeddings"):
        run(tmp_path / "in", tmp_path / "out", id_field="doc_key", input_filetype=kind)
    assert files(tmp_path / "out") == {}
    run(tmp_path / "in", tmp_path / "out", input_filetype=kind)


@pytest.mark.parametrize("kind", ["parquet", "jsonl"])
@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"which_to_keep": "best", "score_field": "worth"}, "no field 'worth' for their scores; they have: id, "),
        ({"which_to_keep": "longest"}, "no field 'text' for their texts; they have: id, embeddings, quality"),
    ],
)
def test_documents_that_have_nothing_to_be_ranked_by_are_an_error_before_the_work(tmp_path, kind, options, words):
    vectors, scores = planted(30, DIM, copies=5), [None] * 29 + [1.0]
    if kind == "parquet":
        write_parquet(tmp_path / "in" / "a.parquet", vectors, quality=scores)
    else:
        rows = [
            {"id": i, "embeddings": v, "quality": s}
            for i, (v, s) in enumerate(zip(vectors.tolist(), scores, strict=True))
        ]
        write_jsonl(tmp_path / "in" / "a.jsonl", rows)
    with pytest.raises(PlanError, match=words):
        run(tmp_path / "in", tmp_path / "out", input_filetype=kind, **options)
    assert files(tmp_path / "out") == {}
    run(tmp_path / "in", tmp_path / "out", input_filetype=kind, which_to_keep="best", score_field="quality")


def test_a_score_that_no_document_of_the_first_has_is_no_error(tmp_path):
    write_parquet(tmp_path / "in" / "a.parquet", planted(30, DIM, copies=5), quality=pa.nulls(30, pa.float64()))
    assert run(tmp_path / "in", tmp_path / "out", which_to_keep="best", score_field="quality").kept == 25


def test_more_clusters_than_embeddings_are_an_error_that_leaves_nothing(source, tmp_path):
    with pytest.raises(PlanError, match="n_clusters is 121, but the input has 120 embeddings"):
        run(source, tmp_path / "out", n_clusters=121)
    assert files(tmp_path / "out") == {}
    run(source, tmp_path / "out")


def test_clusters_of_few_documents_are_reported(source, tmp_path, capsys):
    run(source, tmp_path / "few", n_clusters=30, verbose=True)
    assert "120 embeddings in n_clusters=30 are 4.0 for each" in capsys.readouterr().err
    run(source, tmp_path / "enough", n_clusters=12, verbose=True)
    assert capsys.readouterr().err == ""


def test_embeddings_that_are_too_equal_for_the_clusters_are_reported(tmp_path, capsys):
    write_parquet(tmp_path / "in" / "a.parquet", planted(3, DIM, copies=0).repeat(40, axis=0))
    result = run(tmp_path / "in", tmp_path / "out", n_clusters=5, fit_data_fraction=0.1, verbose=True)
    assert "3 clusters have documents, not n_clusters=5" in capsys.readouterr().err
    assert (result.clusters, result.fit_rows, result.kept) == (3, 80, 3)


@pytest.mark.parametrize("stopped_at", ["sort", "removal"])
def test_files_of_killed_workers_in_the_cache_are_removed(source, tmp_path, stopped_at):
    with pytest.raises(Stopped):
        workflow(source, tmp_path / "out", keep_cache=True).run(StopsAt(stopped_at))
    cache = tmp_path / "out" / "kmeans_results"
    left = [".ranked-x1", ".tmp-7-centroids.npy", "removed.json.tmp-7", "parts/part-000000.labels.tmp-7", "removing/0"]
    for name in left:
        (cache / name).parent.mkdir(exist_ok=True)
        (cache / name).write_text("half")
    with pytest.raises(Stopped):
        workflow(source, tmp_path / "out", keep_cache=True).run(StopsAt("removal"))
    assert not any((cache / name).exists() for name in left)
    run(source, tmp_path / "out", keep_cache=True)
    run(source, tmp_path / "whole", keep_cache=True)
    assert set(files(cache)) == set(files(tmp_path / "whole" / "kmeans_results"))
    assert documents(tmp_path / "out") == documents(tmp_path / "whole")


def test_files_of_killed_workers_are_not_kept_with_the_cache(source, tmp_path):
    class LosesWorkers(InProcess):
        def execute(self, plan, initial_tasks, keep_outputs):
            (tmp_path / "out" / "kmeans_results" / ".ranked-x1").write_text("half")
            return super().execute(plan, initial_tasks, keep_outputs)

    workflow(source, tmp_path / "out", keep_cache=True).run(LosesWorkers())
    assert (tmp_path / "out" / "kmeans_results" / "points.bin").exists()
    assert not (tmp_path / "out" / "kmeans_results" / ".ranked-x1").exists()


def test_the_summary_is_left_to_the_caller_to_print(source, tmp_path, capsys):
    result = run(source, tmp_path / "out", verbose=True)
    told = capsys.readouterr()
    assert "documents" not in told.out + told.err
    assert result.summary().startswith("120 documents")
