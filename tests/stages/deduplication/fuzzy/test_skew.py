"""Many documents with the same key: what that takes grows with their number, not with its square."""

from __future__ import annotations

import random
import re
import tempfile
import time
import tracemalloc
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from gristmill.kernels.signatures import first_equal, labels, union_edges
from gristmill.stages.barrier import KEYS
from gristmill.stages.deduplication.fuzzy import FuzzyDeduplication, staying, verify
from gristmill.stages.deduplication.fuzzy.staying import MOST_COMPARED, MOST_INDEXED
from gristmill.stages.deduplication.link import STAYS, unite
from gristmill.stages.deduplication.match import Match, read_array, tasks_for, write_array
from gristmill.stages.deduplication.parts import Parts
from gristmill.stages.deduplication.records import ROW
from gristmill.stages.spool import PART, in_arrow
from gristmill.storage import Folder
from gristmill.tasks import DocumentBatch
from gristmill.tasks.document import ID

GENEROUS = 60.0
"""How many times as long sixteen times as much may take. Were it quadratic, it would be 256."""


class Here:
    """The context of a barrier's decision, in this process: all documents are in one part."""

    def __init__(self, folder, batch: DocumentBatch) -> None:
        place = Path(tempfile.mkdtemp(dir=folder))
        self.folder = Folder(str(place / "keys"))
        self.records = Folder(str(place / "records"))
        self.memory = 1 << 30
        self.workers = 1
        self.notes: list[str] = []
        self.batch = batch

    def run(self, name, stage, tasks, size):
        stage.setup()
        return [stage.process(task) for task in tasks]

    def few(self, places, field):
        return None

    def again(self, name, stage, parts):
        assert list(parts) == ["part-000000"]
        stage.process(self.batch)


def decided(folder, stage: FuzzyDeduplication, documents: list[str]) -> Here:
    ids = pa.array([f"file#{n}" for n in range(len(documents))])
    batch = DocumentBatch(pa.table({"text": pa.array(documents, pa.large_string()), ID: ids}), task_id="0")
    batch._metadata[PART] = "part-000000"
    between = Here(folder, batch)
    between.folder.write("part-000000" + KEYS, in_arrow(stage.keys(batch)))
    stage.decide(between)
    return between


def cpu(action, *arguments) -> float:
    """The least of two times: the first one may load something."""
    found = []
    for _ in range(2):
        began = time.process_time()
        action(*arguments)
        found.append(time.process_time() - began)
    return min(found)


@pytest.mark.parametrize("columns", [1, 2])
def test_a_million_equal_keys_take_time_in_proportion(columns):
    def match(count: int) -> None:
        keys = np.full((count, columns), 12345, np.uint64)
        first = first_equal(keys if columns == 2 else keys[:, 0])
        assert not first.any()
        parent = np.arange(count)
        union_edges(parent, first[1:], np.arange(1, count))
        assert not labels(parent).any()

    assert cpu(match, 1_000_000) < GENEROUS * max(cpu(match, 62_500), 0.002)


def test_a_chain_of_a_million_pairs_is_united_in_either_direction():
    def unite(count: int, step: int) -> None:
        parent = np.arange(count)
        numbers = np.arange(1, count)[::step]
        union_edges(parent, numbers - 1, numbers)
        assert not labels(parent).any()

    for step in (1, -1):
        assert cpu(unite, 1_000_000, step) < GENEROUS * max(cpu(unite, 62_500, step), 0.002)


BOILERPLATE = "All rights reserved. No part of this page may be reproduced without the permission of the miller. "


def boilerplate(count: int) -> list[str]:
    return [f"{BOILERPLATE}{n}" for n in range(count)]


def test_forty_thousand_documents_of_one_boilerplate_take_time_in_proportion(tmp_path):
    def decide(count: int) -> None:
        between = decided(tmp_path, FuzzyDeduplication(verify_sample=100), boilerplate(count))
        assert between.notes[0].endswith(f"in 1 clusters, the largest of {count:,} (with file#0)")

    assert cpu(decide, 40_000) < GENEROUS * cpu(decide, 2_500)


def test_fifty_thousand_empty_texts_take_time_in_proportion(tmp_path):
    def decide(count: int) -> None:
        between = decided(tmp_path, FuzzyDeduplication(verify=True), [""] * count)
        assert f"{count - 1:,} of {count:,} documents are duplicates" in between.notes[0]

    assert cpu(decide, 50_000) < GENEROUS * cpu(decide, 3_125)


def test_a_large_cluster_of_documents_that_are_not_alike_is_split_with_few_comparisons_each(tmp_path, monkeypatch):
    counted = []
    compared = staying.jaccards

    def counting(values, edges, left, right):
        counted.append(len(left))
        return compared(values, edges, left, right)

    for module in (verify, staying):
        monkeypatch.setattr(module, "jaccards", counting)
    # one minimum to a band: documents that share the boilerplate are linked, though half of each text is its own
    documents = [f"{BOILERPLATE}{' '.join(f'{n}-{k * 7919 * (n + 1)}' for k in range(14))}" for n in range(1500)]
    stage = FuzzyDeduplication(num_bands=20, minhashes_per_band=1, verify=True, jaccard_threshold=0.9)
    between = decided(tmp_path, stage, documents)
    stay = int(re.search(r"all similarities verified; ([\d,]+) documents stay", between.notes[1])[1].replace(",", ""))
    assert 1400 <= stay <= 1499  # few share no band with any other
    assert stay <= sum(counted) <= len(documents) * (MOST_COMPARED + 1)


def sets_of(documents: list[str]) -> list[set[str]]:
    folded = [" ".join(text.lower().split()) for text in documents]
    return [{text[i : i + 24] for i in range(max(1, len(text) - 23))} for text in folded]


def jaccard(left: set[str], right: set[str]) -> float:
    return len(left & right) / len(left | right)


def test_documents_that_stay_are_like_no_other_however_many_bytes_of_shingles_stay(tmp_path):
    """More than 64 MB of shingles stay; copies of the last documents come behind."""
    rng = random.Random(11)
    shared = " ".join(str(rng.randrange(10**9)) for _ in range(300))
    own = [" ".join(str(rng.randrange(10**9)) for _ in range(2300)) for _ in range(380)]
    documents = [f"{shared} {text}" for text in own] + [f"{shared} {text} and more" for text in own[-40:]]
    stage = FuzzyDeduplication(num_bands=20, minhashes_per_band=1, verify=True, jaccard_threshold=0.8)
    between = decided(tmp_path, stage, documents)
    assert sum(map(len, documents)) * 8 * 0.9 > 64 << 20
    stays = read_array(between.folder, STAYS)
    assert np.flatnonzero(stays != np.arange(len(stays))).tolist() == list(range(380, 420))
    assert stays[380:].tolist() == list(range(340, 380))
    unsure = re.findall(r"([\d,]+) of these [\d,]+ were compared only", "".join(between.notes))
    assert "all similarities verified" in between.notes[1] and sum(map(int, unsure)) < 20


def test_uncertain_survivors_are_counted_and_all_others_are_correct(tmp_path, monkeypatch):
    """Many documents share half of their text: the number of uncertain survivors is reported."""
    seed = random.randrange(1 << 32)
    print("seed", seed)
    rng = random.Random(seed)
    monkeypatch.setattr(staying, "MOST_SHARING", 8)
    shared = " ".join(str(rng.randrange(10**9)) for _ in range(40))
    texts = [
        f"{shared} {' '.join(str(rng.randrange(10**9)) for _ in range(size))}" for size in (36, 400) for _ in range(90)
    ]
    texts += [text + " more" * rng.randrange(1, 4) for text in rng.sample(texts, 60)]
    rng.shuffle(texts)
    stage = FuzzyDeduplication(num_bands=20, minhashes_per_band=1, verify=True, jaccard_threshold=0.85)
    between = decided(tmp_path, stage, texts)
    stays = read_array(between.folder, STAYS)
    left = np.flatnonzero(stays == np.arange(len(stays))).tolist()
    unsure = re.search(r"([\d,]+) of these [\d,]+ were compared only with the 16 most alike", "\n".join(between.notes))
    assert unsure and 20 < int(unsure[1]) < len(left)
    sets = sets_of(texts)
    like = [n for n in left if any(jaccard(sets[n], sets[m]) >= 0.85 for m in left if m < n)]
    assert len(like) <= int(unsure[1])


@pytest.mark.parametrize("threshold", [0.2, 0.5, 0.79, 0.95, 1.0])
def test_as_many_least_shingles_are_shared_as_is_asked_for(threshold):
    rng = random.Random(random.randrange(1 << 32))
    least = staying.least_for(threshold)
    for _ in range(300):
        both = rng.randrange(1, 400)
        rest = int(both / threshold) - both
        some = rng.randrange(rest + 1)
        values = [rng.getrandbits(60) for _ in range(both + rest)]
        mine, theirs = values[: both + some], values[:both] + values[both + some :]
        shared = len(set(sorted(mine)[:least]) & set(sorted(theirs)[:least]))
        asked = staying.least_shared(len(mine), threshold)
        assert shared >= asked and (asked >= 1 or least * threshold < len(mine) < least)


def test_the_file_for_sets_has_no_name_and_returns_its_sets(tmp_path):
    sets = staying.SetsOnDisk(Folder(str(tmp_path)))
    arrays = [np.arange(n, dtype=np.uint64) * np.uint64(7) for n in (0, 1, 5000, 3)]
    places = [sets.add(one) for one in arrays]
    assert list(tmp_path.iterdir()) == []
    assert all(np.array_equal(sets.read(place), one) for place, one in zip(places, arrays, strict=True))
    sets.close()


@pytest.mark.parametrize(("held", "most"), [(MOST_INDEXED, 60), (16, 240)])
def test_of_equal_documents_one_stays_however_many_of_a_cluster_stay(tmp_path, monkeypatch, held, most):
    monkeypatch.setattr(staying, "MOST_INDEXED", held)
    words = [f"w{n * 7919 % 100_003}" for n in range(2600)]
    windows = [" ".join(words[k * 10 : k * 10 + 200]) for k in range(240)]
    stage = FuzzyDeduplication(verify=True, num_bands=40, minhashes_per_band=5)
    between = decided(tmp_path, stage, windows * 3)
    stays = read_array(between.folder, STAYS)
    left = np.flatnonzero(stays == np.arange(len(stays)))
    assert 16 < len(left) < most
    assert len({(windows * 3)[n] for n in left}) == len(left)
    assert ("compared only with" in "".join(between.notes)) == (held == 16)
    sets = sets_of(windows)
    for n in np.flatnonzero(stays != np.arange(len(stays))).tolist():
        mine, theirs = sets[n % 240], sets[int(stays[n]) % 240]
        assert stays[stays[n]] == stays[n] and len(mine & theirs) / len(mine | theirs) >= stage.threshold


def test_records_of_a_large_cluster_name_each_document_once(tmp_path):
    import pyarrow.parquet as pq

    between = decided(tmp_path, FuzzyDeduplication(verify_sample=0), ["same"] * 30_000)
    table = pq.read_table(between.records.path("part-000000.parquet"))
    assert table.column(ROW).to_pylist() == list(range(1, 30_000))
    assert table.column("survivor").unique().to_pylist() == ["file#0"]


def test_pairs_of_documents_that_are_not_there_are_refused(tmp_path):
    folder = Folder(str(tmp_path))
    write_array(folder, "band000.pairs", np.array([[0, 1], [1, 10]]))
    with pytest.raises(ValueError, match="of other documents"):
        unite(np.arange(10), folder, ["band000.pairs"])


def test_a_key_that_all_documents_have_takes_no_more_memory_than_others(tmp_path):
    peaks = []
    for name, keys in (("other", np.arange(400_000, dtype=np.uint64)), ("same", np.zeros(400_000, np.uint64))):
        folder = Folder(str(tmp_path / name))
        keys = (keys * np.uint64(0x9E3779B97F4A7C15)) if name == "other" else keys
        for n in range(40):
            some = keys[n * 10_000 : (n + 1) * 10_000]
            table = pa.table({"id": [""] * len(some), "size": np.zeros(len(some), np.int64), "band": some})
            folder.write(f"part-{n:06d}.keys", in_arrow(table))
        parts = Parts.found(folder)
        tasks = tasks_for("band", ["band"], parts.documents, 4 << 20)
        assert len(tasks) > 4
        Match(parts).process(tasks[0])  # all that it loads is loaded
        tracemalloc.start()
        try:
            for task in tasks:
                Match(parts).process(task)
            peaks.append(tracemalloc.get_traced_memory()[1])
        finally:
            tracemalloc.stop()
        parent = np.arange(parts.documents)
        unite(parent, folder, [task.data for task in tasks])
        assert len(np.unique(labels(parent))) == (400_000 if name == "other" else 1)
    assert peaks[1] < 2 * peaks[0]
