"""The stage that looks for documents that are like an entry of a reference."""

from __future__ import annotations

import json
import random
import tracemalloc
from pathlib import Path

import pyarrow as pa
import pytest

from gristmill import Pipeline
from gristmill.kernels import signatures
from gristmill.stages.decontamination import FuzzyDecontamination
from gristmill.stages.registry import registered
from gristmill.tasks import DocumentBatch

WORDS = [
    "mill",
    "grain",
    "flour",
    "stone",
    "wheel",
    "water",
    "river",
    "field",
    "wind",
    "sack",
    "barn",
    "cart",
    "oats",
    "rye",
    "bread",
    "miller",
    "sieve",
    "bran",
    "husk",
]
SCRIPTS = ["", "зерно мука ", "穀物を石臼で挽く", "طحن الحبوب ", "🙂🌾"]


def prose(rng: random.Random, words: int) -> str:
    return " ".join(rng.choice(WORDS) + rng.choice(["", "s", "ed", "ing", "er"]) for _ in range(words))


def edited(rng: random.Random, text: str, share: float) -> str:
    return " ".join("other" if rng.random() < share else word for word in text.split(" "))


def shingles(text: str, size: int = 24) -> set[str]:
    return {text[i : i + size] for i in range(max(len(text) - size + 1, 1))}


def jaccard(one: str, other: str) -> float:
    return len(shingles(one) & shingles(other)) / len(shingles(one) | shingles(other))


def batch(texts: list[str]) -> DocumentBatch:
    return DocumentBatch(data=pa.table({"text": pa.array(texts, pa.large_string())}))


@pytest.fixture
def entries() -> list[str]:
    rng = random.Random(1)
    return [script + prose(rng, 200) for script in SCRIPTS]


def test_only_documents_as_similar_as_the_threshold_go_each_with_its_similarity(entries):
    rng = random.Random(2)
    docs = [edited(rng, entry, share) for entry in entries for share in (0, 0.002, 0.005, 0.01, 0.02, 0.05)]
    docs += [prose(rng, 200) for _ in range(20)]
    # one row in each of many bands: no pair that matters is missed
    stage = FuzzyDecontamination(
        reference_texts=entries, num_bands=100, minhashes_per_band=1, action="flag", score_field="s"
    )
    table = stage.process(batch(docs)).data
    truth = [max((jaccard(doc, entry), -n) for n, entry in enumerate(entries)) for doc in docs]
    assert sum(similarity >= 0.8 for similarity, _ in truth) in range(10, 25)
    for found, score, (similarity, number) in zip(
        *(table.column(c).to_pylist() for c in ("overlaps", "s")), truth, strict=True
    ):
        assert found == (f"text#{-number}" if similarity >= 0.8 else None)
        assert score == pytest.approx(similarity if similarity >= 0.8 else 0)


def test_of_several_entries_that_are_similar_the_most_similar_is_named(entries):
    rng = random.Random(5)
    versions = [entries[0] + " " + prose(rng, extra) for extra in (6, 2, 0, 4)]
    left = FuzzyDecontamination(reference_texts=[*versions, *entries[1:]]).process(batch([entries[0] + " ", "clean"]))
    assert list(left.account.dropped[0].reasons) == ["overlaps text#2"]
    assert list(left.account.dropped[0].scores or ()) == [1.0]


def test_candidates_that_are_not_similar_enough_stay(entries):
    rng = random.Random(3)
    doc = edited(rng, entries[0], 0.02)
    similarity = jaccard(doc, entries[0])
    options = {"reference_texts": entries, "num_bands": 100, "minhashes_per_band": 1}
    for threshold, left in ((similarity - 0.001, 0), (similarity + 0.001, 1)):
        assert FuzzyDecontamination(jaccard_threshold=threshold, **options).process(batch([doc])).num_items == left


def test_an_entry_within_a_longer_document_is_found_by_paragraphs_or_as_contained(entries):
    rng = random.Random(4)
    doc = "\n\n".join([prose(rng, 100), entries[1], prose(rng, 100)])
    assert FuzzyDecontamination(reference_texts=entries).process(batch([doc])).num_items == 1
    left = FuzzyDecontamination(reference_texts=entries, pieces="paragraph").process(batch(["clean", doc]))
    assert left.data.column("text").to_pylist() == ["clean"]
    assert list(left.account.dropped[0].reasons) == ["overlaps text#1"]
    assert list(left.account.dropped[0].scores or ()) == [1.0]
    contained = FuzzyDecontamination(
        reference_texts=entries, measure="containment", num_bands=100, minhashes_per_band=1, jaccard_threshold=0.99
    ).process(batch(["clean", doc]))
    assert list(contained.account.dropped[0].scores or ()) == [1.0]


def test_case_and_white_space_do_not_matter_unless_told_so(entries):
    given = batch([entries[0].upper().replace(" ", "\n "), "clean"])
    assert FuzzyDecontamination(reference_texts=entries).process(given).num_items == 1
    assert FuzzyDecontamination(reference_texts=entries, normalize=False).process(given).num_items == 2
    shouted = [entry.upper() for entry in entries]
    assert FuzzyDecontamination(reference_texts=shouted).process(batch(entries)).num_items == 0


def test_short_and_empty_texts_are_not_looked_for(entries):
    stage = FuzzyDecontamination(reference_texts=["", "Yes.", *entries], pieces="line")
    assert stage.process(batch(["", "Yes.", "Yes.\nNo."])).num_items == 3
    assert FuzzyDecontamination(reference_texts=["Yes."], min_chars=4).process(batch(["Yes.", "No"])).num_items == 1


def test_an_entry_that_is_there_a_thousand_times_is_one(entries):
    stage = FuzzyDecontamination(reference_texts=entries[:1] * 1000)
    assert len(stage.index.similar.texts) == 1
    left = stage.process(batch(entries[:1] * 50))
    assert set(left.account.dropped[0].reasons) == {"overlaps text#0"}


def test_many_entries_that_are_alike_cost_a_text_no_more_than_some(monkeypatch):
    template = prose(random.Random(6), 60)
    stage = FuzzyDecontamination(reference_texts=[f"{template} q{i}" for i in range(1000)])
    docs = batch([f"{template} d{i}" for i in range(500)] * 2)
    stage.setup()
    compared, jaccards = [], signatures.jaccards

    def counted(values, edges, left, right):
        compared.append(len(left))
        return jaccards(values, edges, left, right)

    monkeypatch.setattr(signatures, "jaccards", counted)
    tracemalloc.start()
    try:
        assert stage.process(docs).num_items == 0
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert sum(compared) <= 64 * 500
    assert peak < 100e6


@pytest.mark.parametrize("threshold", [0.8, 1])
def test_a_copy_of_one_of_many_entries_that_are_alike_is_found_as_such(threshold):
    template = prose(random.Random(7), 500)
    versions = [f"{template} {i}" for i in range(1000)]
    stage = FuzzyDecontamination(reference_texts=versions, jaccard_threshold=threshold)
    left = stage.process(batch([*versions[-20:], template + " else"]))
    assert left.num_items == (threshold == 1)
    assert list(left.account.dropped[0].reasons)[:20] == [f"overlaps text#{i}" for i in range(980, 1000)]


@pytest.mark.parametrize("seed", range(5))
def test_an_entry_is_found_among_many_that_seem_as_similar(seed):
    rng = random.Random(8)
    template = prose(rng, 80)
    versions = [f"{template} {prose(rng, 20)}" for _ in range(200)]
    # one minimum: all that share it seem the same
    stage = FuzzyDecontamination(reference_texts=versions, num_bands=1, minhashes_per_band=1, seed=seed)
    left = stage.process(batch([versions[150] + " x", template + " " + prose(rng, 20)]))
    assert left.num_items == 1
    assert list(left.account.dropped[0].reasons) == ["overlaps text#150"]


def test_results_do_not_depend_on_other_documents():
    rng = random.Random(9)
    template = prose(rng, 80)
    versions = [f"{template} {prose(rng, 8)}" for _ in range(1000)]
    docs = [edited(rng, rng.choice(versions), 0.01) for _ in range(30)] + [prose(rng, 80)] + versions[:5] * 2
    stage = FuzzyDecontamination(reference_texts=versions, action="flag", score_field="s")
    together = stage.process(batch(docs)).data.to_pylist()
    assert sum(row["overlaps"] is not None for row in together) > 20
    assert [stage.process(batch([doc])).data.to_pylist()[0] for doc in docs] == together
    assert stage.process(batch(docs[::-1])).data.to_pylist() == together[::-1]


def test_a_pipeline_in_yaml_runs(entries, tmp_path: Path):
    for name, texts in (("in", [*entries[:2], "clean"]), ("bench", entries[1:])):
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    result = Pipeline.from_yaml(
        f"name: p\nstages:\n- JsonlReader: {{file_paths: {tmp_path}/in.jsonl}}\n"
        f"- FuzzyDecontamination: {{reference_path: {tmp_path}/bench.jsonl}}\n- JsonlWriter: {{path: {tmp_path}/out}}\n"
    ).run()
    (dropped,) = result.ledger.total().dropped.items()
    assert dropped == (("FuzzyDecontamination", "overlaps bench.jsonl#0"), 1)
    assert json.loads((tmp_path / "out/excluded/part-000000.jsonl").read_text())["excluded_score"] == 1.0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"action": "cut"}, "'drop', 'flag', not 'cut'"),
        ({"pieces": "word"}, "pieces is one of 'document', 'paragraph', 'line'"),
        ({"measure": "cosine"}, "measure is one of 'jaccard', 'containment'"),
        ({"num_bands": 0}, "num_bands is a whole number from 1 on"),
        ({"jaccard_threshold": 80}, "jaccard_threshold is a share"),
    ],
)
def test_arguments_that_make_no_sense_are_refused(arguments, words):
    with pytest.raises(ValueError, match=words):
        FuzzyDecontamination(reference_texts=["a"], **arguments)


def test_it_is_known_by_name():
    assert registered("FuzzyDecontamination") is FuzzyDecontamination
