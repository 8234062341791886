"""Long chains are split by default, by what their keys say; what is reported as chained is."""

from __future__ import annotations

import random

import numpy as np
import pytest
from tests.stages.deduplication.corpora import deduplicate, edited, lines_of, records_of, texts, write_jsonl

from gristmill.kernels.signatures import Sketcher, estimated_jaccard
from gristmill.kernels.texts import Texts
from gristmill.pipeline.phases import barrier_context
from gristmill.stages.deduplication.fuzzy import FuzzyDeduplication, chains
from gristmill.stages.deduplication.fuzzy.stage import MAX_CHAINED_CLUSTER


def windows(count: int, seed: int = 77, words: int = 120, step: int = 4) -> list[str]:
    """Return texts: each is like the next, and the first has nothing in common with the last."""
    rng = random.Random(seed)
    some = [f"w{rng.randrange(10**8)}" for _ in range(count * step + words)]
    return [" ".join(some[n * step : n * step + words]) for n in range(count)]


def put(folder, documents: list[str]) -> None:
    half = len(documents) // 2
    for n, name in enumerate("ab"):
        some = range(n * half, len(documents) if n else half)
        write_jsonl(folder / f"{name}.jsonl", [{"text": documents[i], "n": i} for i in some])


def survivors(documents: list[str], labels: list[int], far: float, limit: int | None) -> list[int]:
    """The rule in plain Python: for each document the one that it goes for, or itself."""
    sketch = Sketcher().sketch(Texts.of(documents))
    sizes = {label: labels.count(label) for label in set(labels)}
    stays = list(labels)
    owners: dict[int, int] = {}
    for n, label in enumerate(labels):
        alike = float(estimated_jaccard(sketch.small[n], sketch.small[label])) >= far
        linked = bool((sketch.bands[:, n] == sketch.bands[:, label]).any())
        if limit is None or sizes[label] <= limit or alike or linked:
            continue
        keys = sketch.bands[:, n].tolist()
        stays[n] = min((owners[key] for key in keys if key in owners), default=n)
        if stays[n] == n:
            owners |= dict.fromkeys(keys, n)
    return stays


def components(documents: list[str]) -> list[int]:
    """The first document of the cluster of each."""
    bands = Sketcher().sketch(Texts.of(documents)).bands
    labels = list(range(len(documents)))
    changed = True
    while changed:
        before = list(labels)
        for band in bands.tolist():
            least: dict[int, int] = {}
            for n, key in enumerate(band):
                least[key] = min(least.get(key, n), labels[n])
            labels = [min(labels[n], least[key]) for n, key in enumerate(band)]
        changed = labels != before
    return labels


@pytest.mark.parametrize("limit", [MAX_CHAINED_CLUSTER, 2, None])
def test_a_long_chain_is_split_as_a_slow_model_does(tmp_path, limit):
    documents = windows(150) + windows(9, 78) + [edited(text, k, 1) for text in texts(5, 4) for k in range(25)]
    random.Random(4).shuffle(documents)
    put(tmp_path / "in", documents)
    stage = FuzzyDeduplication(max_chained_cluster=limit)
    result = deduplicate(tmp_path / "in", tmp_path / "out", stage, blocksize=9000)
    stays = survivors(documents, components(documents), stage.far, limit)
    left = [n for n, other in enumerate(stays) if n == other]
    assert [d["n"] for d in lines_of(tmp_path / "out")] == left
    assert (len(left) > 30) == (limit is not None)
    assert ("documents stay of" in result.summary()) == (limit is not None)


def test_results_do_not_depend_on_blocks_memory_and_workers(tmp_path, monkeypatch):
    documents = windows(160) + windows(120, 78)
    random.Random(9).shuffle(documents)
    put(tmp_path / "in", documents)
    found = []
    for name, blocksize, limit, workers in (
        *(("roomy", None, None, 0), ("tight", 7000, "100KB", 0)),
        ("two", 20_000, None, 2),
    ):
        monkeypatch.setattr(barrier_context, "HERE_BYTES", 0 if workers else 64 << 20)
        monkeypatch.setattr(chains, "rows_at_once", (lambda *_: 70) if limit else (lambda *_: 10_000))
        stage = FuzzyDeduplication(memory_limit=limit, survivor="longest")
        deduplicate(tmp_path / "in", tmp_path / name, stage, blocksize=blocksize, workers=workers)
        found.append(([{**row, "row": 0} for row in records_of(tmp_path / name)], lines_of(tmp_path / name)))
    assert found[0] == found[1] == found[2] and len(found[0][1]) > 40


def test_documents_beyond_those_that_are_remembered_stay_and_are_counted(tmp_path, monkeypatch):
    monkeypatch.setattr(chains, "MOST_STAYING", 5)
    put(tmp_path / "in", windows(150))
    result = deduplicate(tmp_path / "in", tmp_path / "out", FuzzyDeduplication())
    assert "were not compared with each other: 5 of their cluster stay already" in result.summary()
    assert len(lines_of(tmp_path / "out")) > 100


def test_two_documents_that_share_a_band_are_no_chain(tmp_path):
    """Bands of two minima link documents that are hardly alike: they meet, nothing stands between them."""
    pairs = [text + " " + other for text in texts(3, 12, 60) for other in texts(random.Random(text).random(), 2, 90)]
    put(tmp_path / "in", pairs)
    stage = FuzzyDeduplication(num_bands=20, minhashes_per_band=2, jaccard_threshold=0.9)
    summary = deduplicate(tmp_path / "in", tmp_path / "out", stage).summary()
    gone = len(records_of(tmp_path / "out"))
    assert gone >= 8 and np.diff(sorted(d["n"] // 2 for d in lines_of(tmp_path / "out"))).max() <= 1
    assert "chained" not in summary
    assert f"{gone} of the {gone} removed documents share a band with the document that stays" in summary
