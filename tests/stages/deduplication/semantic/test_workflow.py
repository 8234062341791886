"""Semantic deduplication from files to files."""

import json

import numpy as np
import pytest
from semantic_models import ids_in, planted, records, unit, write_jsonl, write_parquet

from gristmill.backends.local.executor import LocalExecutor
from gristmill.errors import PlanError
from gristmill.stages.deduplication.semantic.workflow import SemanticDeduplicationWorkflow

DIM = 32


def run(source, out, workers=1, **options):
    arguments = {"n_clusters": 1, "eps": 0.05, "verbose": False, **options}
    executor = LocalExecutor({"num_cpus": workers, "view": "off"})
    return SemanticDeduplicationWorkflow(str(source), str(out), **arguments).run(executor)


def content(out, *names):
    return {file.name: file.read_bytes() for name in names for file in sorted((out / name).iterdir())}


def test_near_copies_go_bad_embeddings_stay_and_each_removal_has_its_record(tmp_path):
    vectors = planted(400, DIM, copies=60).tolist()
    rows = [{"id": i, "text": f"text {i}", "embeddings": vector, "lang": "en"} for i, vector in enumerate(vectors)]
    rows[100]["embeddings"] = None
    rows[101]["embeddings"] = [0.0] * DIM
    rows[102]["embeddings"] = [1.0]
    del rows[103]["embeddings"]
    write_jsonl(tmp_path / "in" / "a.jsonl", rows[:250])
    write_jsonl(tmp_path / "in" / "b.jsonl", rows[250:])
    with open(tmp_path / "in" / "b.jsonl", "a") as file:
        file.write('{"id": 400, "embeddings": [NaN]}\n')  # which is no JSON
    out = tmp_path / "out"
    options = {"which_to_keep": "first", "metadata_fields": ["lang"], "perform_removal": True, "blocksize": "64KB"}
    result = run(tmp_path / "in", out, input_filetype="jsonl", **options)

    good = [i for i in range(400) if i not in (100, 101, 102, 103)]
    similarity = unit([vectors[i] for i in good]) @ unit([vectors[i] for i in good]).T
    similarity[np.triu_indices(len(good))] = -1
    expected = {good[i]: similarity[i].max() for i in np.flatnonzero(similarity.max(axis=1) >= 0.95)}
    assert set(expected) >= set(range(340, 400))
    found = {record["id"]: record for record in records(out)}
    assert set(found) == set(expected)
    for i in range(340, 400):
        assert found[i]["kept_id"] == found[i]["similar_id"] == i - 340
        assert found[i]["similarity"] == pytest.approx(expected[i], abs=1e-5)
        assert found[i]["kept_source_id"].startswith(f"{tmp_path}/in/a.jsonl#")
        assert found[i]["lang"] == "en"

    assert result.documents == 401
    assert result.embedded == 396
    assert result.quarantined == {"null": 2, "all zeros": 1, "wrong length": 1}
    assert result.unreadable == 1
    assert result.duplicates == len(expected)
    assert result.kept == 400 - len(expected)
    assert not result.fit_is_sample
    assert {record["id"]: record["reason"] for record in records(out, "quarantine")} == {
        100: "null",
        101: "all zeros",
        102: "wrong length",
        103: "null",
    }
    written = [
        line for file in sorted((out / "deduplicated").glob("*.jsonl")) for line in file.read_text().splitlines()
    ]
    assert written == [json.dumps(row) for row in rows if row["id"] not in expected]
    assert not (out / "kmeans_results").exists()


def test_workers_blocks_batches_and_memory_do_not_change_a_byte(tmp_path):
    vectors = planted(1200, DIM, copies=300)
    write_parquet(tmp_path / "in" / "a.parquet", vectors[:700])
    write_parquet(tmp_path / "in" / "b.parquet", vectors[700:], first=700)
    # so little memory that clusters, of some 13 KB each, are ranked on disk where two workers share it
    options = {"n_clusters": 12, "perform_removal": True, "memory_limit": 56_000}
    one = run(tmp_path / "in", tmp_path / "one", **options)
    other = run(tmp_path / "in", tmp_path / "two", workers=2, blocksize="20KB", pairwise_batch_size=17, **options)
    names = ("pairwise_results", "duplicates")
    assert content(tmp_path / "one", *names) == content(tmp_path / "two", *names)
    assert one.duplicates == other.duplicates >= 295  # some pairs lie on both sides of a border
    assert one.fit_is_sample
    assert one.fit_rows == other.fit_rows < 28_000 / (2 * DIM)
    documents = [
        [id for file in sorted((tmp_path / name / "deduplicated").glob("*.parquet")) for id in ids_in(file)]
        for name in ("one", "two")
    ]
    gone = {record["id"] for record in records(tmp_path / "one")}
    assert documents[0] == documents[1] == [f"doc-{i}" for i in range(1200) if f"doc-{i}" not in gone]


def test_without_eps_similarities_are_all_that_is_written(tmp_path):
    vectors = planted(50, DIM, copies=5)
    write_parquet(tmp_path / "in.parquet", vectors)
    result = run(tmp_path / "in.parquet", tmp_path / "out", eps=None, which_to_keep="first", id_field=None)
    assert result.duplicates is None
    assert set(result.paths) == {"pairwise_results"}
    found = records(tmp_path / "out", "pairwise_results")
    assert [record["id"] for record in found] == [f"{tmp_path}/in.parquet#{i}" for i in range(50)]
    assert found[0]["max_id"] is None
    assert found[0]["cosine_sim_score"] is None
    assert [record["max_id"] for record in found[45:]] == [f"{tmp_path}/in.parquet#{i}" for i in range(5)]
    assert not (tmp_path / "out" / "duplicates").exists()


def test_transitively_linked_duplicates_are_counted(tmp_path):
    angles = np.deg2rad([0, 10, 20, 90])
    vectors = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    write_parquet(tmp_path / "in.parquet", vectors)
    result = run(tmp_path / "in.parquet", tmp_path / "out", eps=0.02, which_to_keep="first")
    found = records(tmp_path / "out")
    assert [(record["id"], record["similar_id"], record["kept_id"]) for record in found] == [
        ("doc-1", "doc-0", "doc-0"),
        ("doc-2", "doc-1", "doc-0"),
    ]
    assert (result.duplicates, result.chained) == (2, 1)


def test_ids_of_two_kinds_become_text(tmp_path):
    vectors = planted(20, DIM, copies=10).tolist()
    write_jsonl(tmp_path / "in" / "a.jsonl", [{"id": i, "embeddings": vectors[i]} for i in range(10)])
    write_jsonl(tmp_path / "in" / "b.jsonl", [{"id": f"b{i}", "embeddings": vectors[i]} for i in range(10, 20)])
    run(tmp_path / "in", tmp_path / "out", input_filetype="jsonl", which_to_keep="first")
    assert {record["id"]: record["kept_id"] for record in records(tmp_path / "out")} == {
        f"b{i + 10}": str(i) for i in range(10)
    }


def test_a_folder_without_embeddings_is_reported_before_anything_is_done(tmp_path):
    write_jsonl(tmp_path / "in" / "a.jsonl", [{"id": 1, "embeddings": None}])
    with pytest.raises(PlanError, match="no document of the input has an embedding in the field 'embeddings'"):
        run(tmp_path / "in", tmp_path / "out", input_filetype="jsonl")


def test_an_input_that_would_be_overwritten_is_refused(tmp_path):
    write_parquet(tmp_path / "deduplicated" / "a.parquet", planted(10, DIM, copies=0))
    with pytest.raises(PlanError, match="write to another folder than the input's"):
        run(tmp_path / "deduplicated", tmp_path)
    assert (tmp_path / "deduplicated" / "a.parquet").exists()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"n_clusters": 0}, "n_clusters must be a whole number above 0"),
        ({"which_to_keep": "nicest"}, "which_to_keep must be one of 'hard'"),
        ({"eps": None, "perform_removal": True}, "perform_removal needs eps"),
        ({"which_to_keep": "best"}, "needs score_field"),
        ({"distance_metric": "dot"}, "distance_metric must be one of 'cosine', 'l2'"),
        ({"eps": -1}, "eps must be between 0 and 2"),
        ({"cache_path": "memory://cache"}, "cache_path must be a folder"),
    ],
)
def test_arguments_that_make_no_sense_are_errors_at_once(options, words):
    with pytest.raises(ValueError, match=words):
        SemanticDeduplicationWorkflow("in", "out", **{"n_clusters": 1, "eps": 0.1, **options})
