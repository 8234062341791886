"""Fuzzy deduplication from files to files, against bands in a dict and union-find in plain Python."""

from __future__ import annotations

import random
import re
from collections import defaultdict

import pytest
from tests.stages.deduplication.corpora import (
    deduplicate,
    edited,
    lines_of,
    places,
    records_of,
    texts,
    write_jsonl,
    written,
)

from gristmill.kernels.signatures import Sketcher
from gristmill.kernels.texts import Texts
from gristmill.stages.deduplication.fuzzy import FuzzyDeduplication


def clusters_of(documents: list[str], **sketcher) -> list[int]:
    """For each text the first one that is transitively linked with it by equal bands."""
    bands = Sketcher(**sketcher).sketch(Texts.of(documents)).bands.tolist()
    parent = list(range(len(documents)))

    def root(n: int) -> int:
        while parent[n] != n:
            n = parent[n]
        return n

    for band in bands:
        buckets = defaultdict(list)
        for n, key in enumerate(band):
            buckets[key].append(n)
        for members in buckets.values():
            for other in members[1:]:
                a, b = sorted((root(members[0]), root(other)))
                parent[b] = a
    return [root(n) for n in range(len(documents))]


def normalized(text: str) -> str:
    """The characters that are compared by default."""
    return " ".join(text.lower().split())


def shingles(text: str, width: int = 24) -> set[str]:
    return {text[i : i + width] for i in range(max(1, len(text) - width + 1))}


def word_shingles(text: str, width: int) -> set[tuple[str, ...]]:
    words = text.split()
    return {tuple(words[i : i + width]) for i in range(max(1, len(words) - width + 1))}


def jaccard(left: set, right: set) -> float:
    return len(left & right) / len(left | right)


def near_duplicates(seed: int, families: int = 25) -> list[str]:
    """Families of texts that are more or less alike, mixed up."""
    rng = random.Random(seed)
    found = []
    for n, text in enumerate(texts(seed, families)):
        found += [text] + [edited(text, seed + 100 * n + k, rng.choice([0, 1, 1, 2, 3, 8])) for k in range(n % 6)]
    found += [text.upper().replace(" ", "\n  ") for text in found[::9]]
    found += ["", "", " ", "short", "short", "short one", "šhört", "\n\n", "日本語の短い文章", "日本語の短い文章"]
    rng.shuffle(found)
    return found


def put(folder, documents: list[str]) -> None:
    """In three files."""
    third = len(documents) // 3 + 1
    for n, name in enumerate("abc"):
        some = range(n * third, min(len(documents), (n + 1) * third))
        write_jsonl(folder / f"{name}.jsonl", [{"text": documents[i], "n": i} for i in some])


@pytest.mark.parametrize(
    ("arguments", "sketcher"),
    [
        ({}, {}),
        ({"normalize": False}, {}),
        (
            {"word_ngrams": 3, "num_bands": 9, "minhashes_per_band": 4, "seed": 7, "method": "classic"},
            {"ngrams": 3, "unit": "word", "num_bands": 9, "minhashes_per_band": 4, "seed": 7, "method": "classic"},
        ),
    ],
)
def test_clusters_survivors_and_records_are_those_of_a_slow_model(tmp_path, arguments, sketcher):
    documents = near_duplicates(3)
    put(tmp_path / "in", documents)
    stage = FuzzyDeduplication(survivor="longest", bands_per_iteration=2, **arguments)
    result = deduplicate(tmp_path / "in", tmp_path / "out", stage, blocksize=4000)
    seen = normalized if arguments.get("normalize", True) else str
    labels = clusters_of([seen(text) for text in documents], **sketcher)
    clusters = defaultdict(list)
    for n, label in enumerate(labels):
        clusters[label].append(n)
    longest = {
        label: max(members, key=lambda n: (len(documents[n].encode()), -n)) for label, members in clusters.items()
    }
    ids = list(places(tmp_path / "in"))
    expected = [(ids[n], ids[longest[c]], ids[c]) for n, c in enumerate(labels) if longest[c] != n]
    records = records_of(tmp_path / "out")
    assert [(row["id"], row["survivor"], row["cluster"]) for row in records] == expected and len(expected) > 30
    assert [d["n"] for d in lines_of(tmp_path / "out")] == sorted(longest.values())
    whole = result.ledger.total()
    assert whole.kept + whole.dropped.total() == whole.documents == len(documents)
    assert dict(whole.dropped) == {("FuzzyDeduplication", "near duplicate"): len(expected)}
    shown = [cluster for cluster in clusters.values() if len(cluster) > 1]
    largest = max(map(len, shown))
    assert f"in {len(shown):,} clusters, the largest of {largest:,}" in result.summary()
    kind = (lambda text: word_shingles(text, 3)) if "word_ngrams" in arguments else shingles
    by_id = {ident: seen(text) for ident, text in places(tmp_path / "in").items()}
    for row in records:
        true = jaccard(kind(by_id[row["id"]]), kind(by_id[row["survivor"]]))
        assert row["jaccard_verified"] == pytest.approx(true, abs=1e-6)
        assert row["jaccard_estimated"] == pytest.approx(true, abs=0.35)


def test_the_sample_that_is_verified_is_the_same_each_time_and_has_the_size_of_verify_sample(tmp_path):
    documents = [edited(text, 50 + n, 1) for text in texts(8, 6) for n in range(10)]
    put(tmp_path / "in", documents)
    samples = []
    for name, blocksize in (("one", None), ("two", 3000)):
        stage = FuzzyDeduplication(verify_sample=7)
        result = deduplicate(tmp_path / "in", tmp_path / name, stage, blocksize=blocksize)
        records = records_of(tmp_path / name)
        assert f"similarity verified for 7 of {len(records)}" in result.summary()
        samples.append([(row["id"], row["jaccard_verified"]) for row in records if row["jaccard_verified"] is not None])
    assert len(samples[0]) == 7 and samples[0] == samples[1]
    assert samples[0] != [(row["id"], row["jaccard_verified"]) for row in records[:7]]


def chain(length: int) -> list[str]:
    """Return texts: each is like the next, and the first not like the last."""
    words = texts(77, 1, 240)[0].split()
    others = texts(78, 1, 240)[0].split()
    step = 14
    return [" ".join(others[: k * step] + words[k * step :]) for k in range(length)]


def test_a_chain_is_reported_and_with_verify_taken_apart(tmp_path):
    links = chain(9)
    documents = [*links, *texts(5, 3)]
    near, far = jaccard(shingles(links[0]), shingles(links[1])), jaccard(shingles(links[0]), shingles(links[-1]))
    assert near > 0.8 and far < 0.45
    put(tmp_path / "in", documents)
    arguments = {"num_bands": 40, "minhashes_per_band": 5, "jaccard_threshold": 0.75}
    plain = deduplicate(tmp_path / "in", tmp_path / "plain", FuzzyDeduplication(**arguments))
    assert [d["n"] for d in lines_of(tmp_path / "plain")] == [0, 9, 10, 11]
    chained = re.search(r"(\d+) of the 8 removed documents are chained", plain.summary())
    truly = [n for n in range(1, 9) if jaccard(shingles(links[0]), shingles(links[n])) < 0.75]
    assert chained and 0 < int(chained[1]) <= len(truly)

    result = deduplicate(tmp_path / "in", tmp_path / "split", FuzzyDeduplication(verify=True, **arguments))
    stay, gone = [0], {}
    for n in range(1, 9):  # the rule, in plain Python: a document goes for the first that stays and is like it
        like = [s for s in stay if jaccard(shingles(links[n]), shingles(links[s])) >= 0.75]
        gone |= {n: like[0]} if like else {}
        stay += [] if like else [n]
    assert len(stay) > 2
    assert [d["n"] for d in lines_of(tmp_path / "split")] == [*stay, 9, 10, 11]
    ids = list(places(tmp_path / "in"))
    rows = records_of(tmp_path / "split")
    assert [(row["id"], row["survivor"], row["cluster"]) for row in rows] == [
        (ids[n], ids[s], ids[0]) for n, s in gone.items()
    ]
    assert all(row["jaccard_verified"] >= 0.75 for row in rows)
    assert f"{len(stay) - 1} documents stay that are linked to others of their cluster" in result.summary()
    assert "chained" not in result.summary()


def test_split_clusters_are_the_same_in_any_number_of_groups_parts_and_workers(tmp_path):
    rng = random.Random(2)
    documents = [edited(link, 900 + n, 2) for n in range(6) for link in chain(8)]
    documents += [edited(text, 500 + k, 6) for text in texts(31, 8) for k in range(6)]
    rng.shuffle(documents)
    put(tmp_path / "in", documents)
    arguments = {"num_bands": 30, "minhashes_per_band": 5, "jaccard_threshold": 0.7, "verify": True}
    found = []
    for name, blocksize, limit in (("roomy", None, None), ("tight", 20_000, "150KB")):
        stage = FuzzyDeduplication(memory_limit=limit, survivor="longest", **arguments)
        deduplicate(tmp_path / "in", tmp_path / name, stage, blocksize=blocksize)
        records = [{**row, "row": 0} for row in records_of(tmp_path / name)]
        found.append((records, lines_of(tmp_path / name)))
    assert found[0] == found[1] and 10 < len(found[0][0]) < len(documents) - 5
    kept = {d["text"] for d in found[0][1]}
    by_id = places(tmp_path / "in")
    assert all(by_id[row["survivor"]] in kept for row in found[0][0])


def test_documents_without_words_are_one_cluster(tmp_path):
    documents = ["", " ", "", "   ", "\n", "", " "]
    put(tmp_path / "in", documents)
    deduplicate(tmp_path / "in", tmp_path / "chars", FuzzyDeduplication(normalize=False))
    assert sorted(d["text"] for d in lines_of(tmp_path / "chars")) == sorted(set(documents))
    deduplicate(tmp_path / "in", tmp_path / "words", FuzzyDeduplication(word_ngrams=5, verify=True, normalize=False))
    deduplicate(tmp_path / "in", tmp_path / "folded", FuzzyDeduplication(verify=True))
    for name in ("words", "folded"):
        assert [d["n"] for d in lines_of(tmp_path / name)] == [0]


def test_estimates_are_near_the_truth_on_texts_of_many_lengths(tmp_path):
    documents = []
    for n, words in enumerate((8, 20, 60, 200, 600)):
        for k, text in enumerate(texts(60 + n, 5, words)):
            documents += [text, edited(text, k, max(1, words // 60))]
    put(tmp_path / "in", documents)
    deduplicate(tmp_path / "in", tmp_path / "out", FuzzyDeduplication(num_bands=64, minhashes_per_band=4))
    errors = [row["jaccard_estimated"] - row["jaccard_verified"] for row in records_of(tmp_path / "out")]
    assert len(errors) > 15 and max(map(abs, errors)) < 0.16 and abs(sum(errors)) / len(errors) < 0.03


@pytest.mark.parametrize(
    "arguments",
    [
        {"char_ngrams": 0},
        {"num_bands": -1},
        {"minhashes_per_band": 1.5},
        {"method": "slow"},
        {"jaccard_threshold": 1.2},
        {"bands_per_iteration": -3},
        {"bands_per_iteration": 0},
        {"word_ngrams": 0},
        {"bands_per_iteration": 21},
        {"bands_per_iteration": 6, "num_bands": 5},
        {"word_ngrams": 5, "char_ngrams": 12},
        {"survivor": "best"},
        {"max_chained_cluster": 0},
    ],
)
def test_arguments_that_make_no_sense_are_refused_by_name(arguments):
    with pytest.raises(ValueError, match="|".join([*arguments, "score_field"])):
        FuzzyDeduplication(**arguments)


def test_an_input_without_near_duplicates_is_reported_and_leaves_no_records(tmp_path):
    put(tmp_path / "in", texts(4, 9))
    result = deduplicate(tmp_path / "in", tmp_path / "out", FuzzyDeduplication())
    assert "no duplicates among 9 documents" in result.summary()
    assert all(name.startswith("part-") for name in written(tmp_path / "out"))


def test_a_threshold_without_effect_is_reported_before_the_start(tmp_path, capsys):
    put(tmp_path / "in", texts(4, 9))
    for n, (arguments, said) in enumerate(
        [({"jaccard_threshold": 0.9}, True), ({"jaccard_threshold": 0.9, "verify": True}, False), ({}, False)]
    ):
        deduplicate(tmp_path / "in", tmp_path / f"out{n}", FuzzyDeduplication(bands_per_iteration=20, **arguments))
        lines = capsys.readouterr().err.splitlines()
        assert [("verify=True" in line) for line in lines if "jaccard_threshold" in line] == [True] * said
