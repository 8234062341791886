"""Semantic deduplication as a stage of a pipeline: the same duplicates as the workflow, and its accounts."""

import json
import random

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from semantic_models import planted, records, unit, write_jsonl, write_parquet
from tests.stages.deduplication.in_process import InProcess

from gristmill import Pipeline
from gristmill.backends.local.executor import LocalExecutor
from gristmill.dedup import SemanticDeduplication, SemanticDeduplicationWorkflow
from gristmill.errors import OutputChanged, PipelineError
from gristmill.stages.deduplication.semantic.arguments import default_clusters
from gristmill.text import JsonlReader, JsonlWriter, ParquetReader, ParquetWriter

DIM = 32


@pytest.fixture
def seed():
    drawn = random.randrange(2**31)
    print("seed", drawn)
    return drawn


def rows_of(vectors):
    return [{"id": f"doc-{n}", "text": "word " * (n % 7), "embeddings": v} for n, v in enumerate(vectors.tolist())]


def run(source, out, executor=None, reader=JsonlReader, writer=JsonlWriter, read=None, **options):
    stages = [reader(str(source), **(read or {})), SemanticDeduplication(**options), writer(str(out))]
    return Pipeline("p", stages=stages).run(executor or InProcess())


def lines(folder, pattern="*.jsonl"):
    return [json.loads(line) for file in sorted(folder.glob(pattern)) for line in file.read_text().splitlines()]


def test_duplicates_go_and_have_records_unusable_embeddings_stay(tmp_path, seed):
    vectors = planted(300, DIM, copies=0, seed=seed)
    noise = np.linspace(0, 1.2, 50)[:, None] * np.random.default_rng(seed).normal(size=(50, DIM))
    vectors[250:] = vectors[:50] + noise  # on both sides of the threshold
    rows = rows_of(vectors)
    rows[100]["embeddings"] = None
    rows[101]["embeddings"] = [0.0] * DIM
    rows[102]["embeddings"] = [1.0]
    rows[103]["embeddings"] = []
    write_jsonl(tmp_path / "in" / "a.jsonl", rows[:130])
    write_jsonl(tmp_path / "in" / "b.jsonl", rows[130:])

    options = {"eps": 0.05, "n_clusters": 1, "which_to_keep": "first", "id_field": "id"}
    result = run(tmp_path / "in", tmp_path / "out", read={"blocksize": "20KB"}, **options)

    good = [i for i in range(300) if i not in (100, 101, 102, 103)]
    similarity = unit(vectors[good]) @ unit(vectors[good]).T
    similarity[np.triu_indices(len(good))] = -1
    expected = {f"doc-{good[i]}": similarity[i].max() for i in np.flatnonzero(similarity.max(axis=1) >= 0.95)}
    assert 5 < len(expected) < 50
    assert any(0.95 <= similarity < 0.975 for similarity in expected.values())
    assert [row["id"] for row in lines(tmp_path / "out")] == [row["id"] for row in rows if row["id"] not in expected]
    found = {record["document_id"]: record for record in records(tmp_path / "out")}
    assert set(found) == set(expected)
    for name, record in found.items():
        assert record["survivor_document_id"] == f"doc-{int(name[4:]) - 250}"
        assert record["similar"] == record["survivor"]
        assert record["similar"].startswith(f"{tmp_path}/in/a.jsonl#")
        assert record["similarity"] == pytest.approx(expected[name], abs=1e-5)
        assert record["cluster"] == 0
    gone = lines(tmp_path / "out" / "excluded")
    assert {row["id"] for row in gone} == set(expected)
    assert {row["excluded_reason"] for row in gone} == {"semantic duplicate"}
    assert sorted(row["excluded_score"] for row in gone) == sorted(record["similarity"] for record in found.values())
    assert f"{len(expected)} of 300 documents are duplicates at eps 0.05" in result.summary().replace("\n    ", " ")
    notes = result.summary().replace("\n    ", " ")
    assert "4 documents without a usable embedding are kept: 1 all zeros, 1 null, 2 wrong length" in notes
    assert not list((tmp_path / "out").rglob("kmeans_results"))


@pytest.mark.parametrize("policy", ["hard", "easy", "random", "first", "longest", "best"])
def test_the_stage_and_the_workflow_remove_the_same_documents(policy, tmp_path, seed):
    draw = random.Random(seed)
    vectors = planted(500, DIM, copies=150, seed=seed)
    write_parquet(
        tmp_path / "in" / "a.parquet",
        vectors,
        text=["x" * draw.randint(0, 9) for _ in vectors],
        score=[draw.choice([None, draw.random()]) for _ in vectors],
    )
    options = {
        "n_clusters": draw.randint(1, 6),
        "eps": draw.choice([0.01, 0.05, 0.3]),
        "distance_metric": draw.choice(["cosine", "l2"]),
        "id_field": "id",
        "score_field": "score",
        "which_to_keep": policy,
        "random_state": draw.randint(0, 99),
    }
    print(options)
    flow = SemanticDeduplicationWorkflow(
        str(tmp_path / "in"), str(tmp_path / "flow"), perform_removal=True, verbose=False, **options
    )
    expected = flow.run(InProcess())
    run(tmp_path / "in", tmp_path / "out", None, ParquetReader, ParquetWriter, **options)

    mine = {row["document_id"]: row for row in records(tmp_path / "out")}
    theirs = {row["id"]: row for row in records(tmp_path / "flow")}
    assert 0 < expected.duplicates == len(mine)
    assert mine.keys() == theirs.keys()
    for name, row in mine.items():
        other = theirs[name]
        assert row["survivor_document_id"] == other["kept_id"]
        assert (row["similarity"], row["cluster"]) == (other["similarity"], other["cluster"])
    kept = [
        pa.concat_tables(pq.read_table(path) for path in sorted(folder.glob("*.parquet")))
        for folder in (tmp_path / "out", tmp_path / "flow" / "deduplicated")
    ]
    assert kept[0].equals(kept[1])


def test_workers_and_blocks_do_not_change_a_byte(tmp_path, seed):
    rows = rows_of(planted(1500, DIM, copies=300, seed=seed))
    write_jsonl(tmp_path / "in" / "a.jsonl", rows)
    written = []
    for name, workers, blocksize in (("one", 1, "1MB"), ("three", 3, "30KB")):
        executor = LocalExecutor({"num_cpus": workers, "view": "off"})
        run(tmp_path / "in", tmp_path / name, executor, read={"blocksize": blocksize}, eps=0.05, n_clusters=7)
        records_of = sorted(records(tmp_path / name), key=lambda row: int(row["id"].rpartition("#")[2]))
        for row in records_of:
            row.pop("row")  # in its block
        written.append((lines(tmp_path / name), records_of))
    assert written[0] == written[1]
    assert len(written[0][0]) < 1250


def test_embeddings_can_be_dropped_and_a_finished_run_is_left_alone(tmp_path, seed):
    write_jsonl(tmp_path / "in" / "a.jsonl", rows_of(planted(80, DIM, copies=20, seed=seed)))
    run(tmp_path / "in", tmp_path / "out", eps=0.05, drop_embeddings=True)
    kept = lines(tmp_path / "out")
    assert 0 < len(kept) <= 60
    assert {tuple(row) for row in kept} == {("id", "text")}
    assert not any("embeddings" in row for row in lines(tmp_path / "out" / "excluded"))
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "out").glob("*.jsonl")}
    again = InProcess()
    run(tmp_path / "in", tmp_path / "out", again, eps=0.05, drop_embeddings=True)
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "out").glob("*.jsonl")} == before
    with pytest.raises(OutputChanged, match="eps"):
        run(tmp_path / "in", tmp_path / "out", eps=0.1, drop_embeddings=True)


def test_other_folders_for_the_clusters(tmp_path, seed, monkeypatch):
    write_jsonl(tmp_path / "in" / "a.jsonl", rows_of(planted(60, DIM, copies=20, seed=seed)))
    run(tmp_path / "in", tmp_path / "out", eps=0.05)
    run(tmp_path / "in", tmp_path / "cached", eps=0.05, cache_path=tmp_path / "cache")
    assert list((tmp_path / "cache").iterdir()) == []
    memory = f"memory://{tmp_path.name}/out"
    run(tmp_path / "in", memory, eps=0.05)
    import fsspec

    files = fsspec.filesystem("memory").glob(f"/{tmp_path.name}/out/*.jsonl")
    remote = [json.loads(line) for path in files for line in fsspec.filesystem("memory").cat(path).splitlines()]
    assert remote == lines(tmp_path / "out") == lines(tmp_path / "cached")
    assert len(remote) <= 40


def test_what_cannot_be_decided_is_an_error(tmp_path, seed):
    write_jsonl(tmp_path / "in" / "a.jsonl", [{"text": "a", "embeddings": None}, {"text": "b", "embeddings": []}])
    result = run(tmp_path / "in", tmp_path / "none")
    assert "no document has an embedding" in result.summary()
    assert len(lines(tmp_path / "none")) == 2
    write_jsonl(tmp_path / "in" / "a.jsonl", rows_of(planted(9, DIM, copies=0, seed=seed)))
    with pytest.raises(ValueError, match="n_clusters is 10, but there are 9 embeddings"):
        run(tmp_path / "in", tmp_path / "many", n_clusters=10)
    with pytest.raises(PipelineError, match="vectors"):
        run(tmp_path / "in", tmp_path / "misspelt", embedding_field="vectors")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"eps": None}, "needs eps"),
        ({"eps": 3}, "eps must be between 0 and 2"),
        ({"which_to_keep": "best"}, "needs score_field"),
        ({"which_to_keep": "soft"}, "which_to_keep must be one of 'hard'"),
        ({"n_clusters": 0}, "n_clusters must be a whole number above 0"),
        ({"cache_path": "memory://cache"}, "cache_path must be a folder that all workers see"),
        ({"embedding_dim": 0}, "embedding_dim must be between"),
    ],
)
def test_wrong_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        SemanticDeduplication(**arguments)


def test_the_default_number_of_clusters():
    assert [default_clusters(rows) for rows in (1, 999, 2000, 20_000, 10**6, 10**8)] == [1, 1, 2, 20, 1000, 10_000]
