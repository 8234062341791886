"""The stages one after the other, in this process: who is kept, and what stages do with odd input."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from semantic_models import planted

from gristmill.stages.deduplication.semantic import (
    AssignClustersStage,
    IdentifyDuplicatesStage,
    KMeansStage,
    PairwiseStage,
    SortByClusterStage,
    StoreEmbeddingsStage,
    cluster,
    pairwise_stage,
)
from gristmill.stages.deduplication.semantic.cluster import count_clusters, sampled
from gristmill.stages.deduplication.semantic.fixed_point import to_grid
from gristmill.stages.deduplication.semantic.store import EmbeddingStore, StoredPart
from gristmill.stages.deduplication.semantic.tasks import ClusterRange, EmbeddingPart
from gristmill.tasks import DocumentBatch, EmptyTask
from gristmill.tasks.document import ID

DIM = 32
MEMORY = 1 << 20


def stored(folder, vectors, policy="hard", seed=42, **columns):
    """The store of one batch of documents 0, 1, ..."""
    embeddings = pa.array([None if vector is None else list(map(float, vector)) for vector in vectors])
    sources = [f"f#{i}" for i in range(len(vectors))]
    table = pa.table({"id": np.arange(len(vectors)), "embeddings": embeddings, ID: sources, **columns})
    stage = StoreEmbeddingsStage(
        str(folder),
        str(folder / "quarantine"),
        "embeddings",
        DIM,
        id_field="id",
        which_to_keep=policy,
        score_field="score",
        random_state=seed,
    )
    part = stage.process(DocumentBatch(task_id="0", data=table))
    EmbeddingStore(str(folder)).write_parts([StoredPart("0", part.rows)], DIM, [])
    return part


def duplicates(folder, policy, eps=0.05, clusters=1, metric="cosine"):
    """The pairs in a store: (duplicate, the one that is kept, similarity)."""
    where = str(folder)
    (folder / "pairs").mkdir()
    count = KMeansStage(where, clusters, MEMORY).process(EmptyTask()).data[1]
    part = EmbeddingPart(data="0")
    AssignClustersStage(where, metric).process(part)
    count_clusters(EmbeddingStore(where), count)
    SortByClusterStage(where).process(part)
    pairs = PairwiseStage(where, f"{where}/pairs", MEMORY, policy).process(ClusterRange(data=(0, count)))
    found = IdentifyDuplicatesStage(where, f"{where}/pairs", f"{where}/duplicates", eps).process(pairs)
    rows = [row for name in found.files for row in pq.read_table(f"{where}/duplicates/{name}").to_pylist()]
    return {row["id"]: row["kept_id"] for row in rows}


def kept(folder, policy, metric="cosine", seed=42, **columns):
    """Which of each pair of near copies i and i + 40 is kept."""
    vectors = planted(60, DIM, copies=20, noise=0.01)
    stored(folder, vectors, policy, seed, **columns)
    found = duplicates(folder, policy, metric=metric)
    assert all(abs(one - other) == 40 for one, other in found.items())
    assert len(found) == 20
    return [found.get(i, i) for i in range(20)]


def test_the_best_score_is_kept_and_none_is_worse_than_any(tmp_path):
    scores = [None if i in (3, 45) else float(i % 7 - 3) for i in range(60)]
    worst = [-9.0 if score is None else score for score in scores]
    found = kept(tmp_path, "best", score=pa.array(scores, pa.float64()))
    assert found == [i if worst[i] >= worst[i + 40] else i + 40 for i in range(20)]


def test_the_longest_text_is_kept_by_characters(tmp_path):
    texts = ["é" * (i % 7 + 3) if i < 40 else "e" * ((i - 40) % 7 + 4) for i in range(60)]
    assert kept(tmp_path, "longest", text=texts) == list(range(40, 60))


@pytest.mark.parametrize("metric", ["cosine", "l2"])
def test_hard_and_easy_keep_opposite_ones(tmp_path, metric):
    hard, easy = (kept(tmp_path / policy, policy, metric) for policy in ("hard", "easy"))
    assert all(abs(one - other) == 40 for one, other in zip(hard, easy, strict=True))


def test_chance_is_the_same_for_the_same_seed(tmp_path):
    one, same, other = (kept(tmp_path / str(i), "random", seed=seed) for i, seed in enumerate((1, 1, 2)))
    assert one == same != other
    assert 0 < sum(i < 20 for i in one) < 20


def test_duplicates_of_duplicates_lead_to_one_that_stays(tmp_path):
    angles = np.deg2rad([0, 10, 20, 90])
    vectors = np.zeros((4, DIM))
    vectors[:, 0], vectors[:, 1] = np.cos(angles), np.sin(angles)
    stored(tmp_path, vectors, "first")
    assert duplicates(tmp_path, "first", eps=0.02) == {1: 0, 2: 0}


def test_a_cluster_of_several_files_gives_the_same_as_one_of_one(tmp_path, monkeypatch):
    found = []
    for rows in (pairwise_stage.ROWS_PER_FILE, 7):
        monkeypatch.setattr(pairwise_stage, "ROWS_PER_FILE", rows)
        folder = tmp_path / str(rows)
        stored(folder, planted(60, DIM, copies=20, noise=0.01), "first")
        gone = duplicates(folder, "first", clusters=2)
        pairs = pa.concat_tables([pq.read_table(path) for path in sorted((folder / "pairs").iterdir())])
        found.append((gone, pairs))
    assert len(list((tmp_path / "7" / "pairs").iterdir())) > 5
    assert found[0][0] == found[1][0] == {i + 40: i for i in range(20)}
    assert found[0][1].equals(found[1][1])
    whole = found[0][1].to_pylist()
    first = [row for row in whole if row["rank"] == 0]
    assert len(first) == 2 and all(row["max_id"] is row["max_rank"] is row["cosine_sim_score"] is None for row in first)
    assert all(row["max_id"] is not None for row in whole if row["rank"])


def test_only_those_of_one_cluster_are_compared(tmp_path):
    angles = np.deg2rad([0, 1, 2, 45, 88, 89, 90])
    vectors = np.zeros((7, DIM))
    vectors[:, 0], vectors[:, 1] = np.cos(angles), np.sin(angles)
    stored(tmp_path / "two", vectors, "first")
    found = duplicates(tmp_path / "two", "first", eps=0.9, clusters=2)
    assert len(set(range(7)) - set(found)) == 2
    stored(tmp_path / "one", vectors, "first")
    assert set(duplicates(tmp_path / "one", "first", eps=0.9)) >= set(found)


def test_parts_that_are_read_bit_by_bit_give_the_same(tmp_path, monkeypatch):
    vectors = planted(300, DIM, copies=100)
    stored(tmp_path / "whole", vectors)
    whole = duplicates(tmp_path / "whole", "hard", clusters=4)
    monkeypatch.setattr(cluster, "STEP", 7)
    stored(tmp_path / "bits", vectors)
    assert duplicates(tmp_path / "bits", "hard", clusters=4) == whole
    assert len(whole) >= 95


def test_a_threshold_is_inclusive(tmp_path):
    vectors = np.tile(planted(1, DIM, copies=0), (3, 1))
    stored(tmp_path, vectors, "first")
    assert duplicates(tmp_path, "first", eps=0.0) == {1: 0, 2: 0}


def test_a_batch_without_any_embedding_is_an_empty_part(tmp_path):
    part = stored(tmp_path, [None, None])
    assert (part.rows, part.bad) == (0, {"null": 2})
    listed = pq.read_table(tmp_path / "quarantine" / "part-000000.parquet").to_pylist()
    assert [(row["id"], row["source_id"], row["reason"]) for row in listed] == [(0, "f#0", "null"), (1, "f#1", "null")]


@pytest.mark.parametrize(
    "options", [{"fit_data_fraction": 0.01}, {"memory": 0}, {"memory": 0, "fit_data_fraction": 0.5}]
)
def test_a_sample_is_never_too_small_for_the_clusters(tmp_path, options):
    stored(tmp_path, planted(300, DIM, copies=0))
    for seed in range(12):
        arguments = {"memory": MEMORY, "random_state": seed, **options}
        fit = KMeansStage(str(tmp_path), 10, **arguments).process(EmptyTask())
        assert fit.data == (0, 10)
        assert fit.found["fit_rows"] == (160 if arguments["memory"] else 10)
        AssignClustersStage(str(tmp_path)).process(EmbeddingPart(data="0"))
        assert set(np.fromfile(EmbeddingStore(str(tmp_path)).part_file("0", "labels"), np.int32).tolist()) == set(
            range(10)
        )


def test_a_fraction_of_few_rows_takes_all_of_them(tmp_path):
    stored(tmp_path, planted(30, DIM, copies=0))
    fit = KMeansStage(str(tmp_path), 10, MEMORY, fit_data_fraction=0.01).process(EmptyTask())
    assert (fit.found["fit_rows"], fit.found["fit_is_sample"]) == (30, False)


def test_a_sample_depends_on_the_rows_and_not_on_their_parts(tmp_path):
    points = to_grid(planted(1000, DIM, copies=0))
    samples = []
    for name, sizes in (("one", [1000]), ("many", [1, 0, 499, 300, 200])):
        store, start, parts = EmbeddingStore(str(tmp_path / name)), 0, []
        for number, size in enumerate(sizes):
            store.write(store.part_file(str(number), "points"), points[start : start + size])
            parts.append(StoredPart(str(number), size, start))
            start += size
        store.write_parts(parts, DIM, [])
        samples.append(sampled(store, 200, seed=5))
    assert np.array_equal(samples[0][0], samples[1][0])
    assert len(samples[0][0]) == 200
    assert samples[0][1]
    everything, is_sample = sampled(EmbeddingStore(str(tmp_path / "many")), 1000, seed=5)
    assert len(everything) == 1000
    assert not is_sample
