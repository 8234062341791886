"""A classifier in a pipeline from files to files."""

from __future__ import annotations

import json
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from tests.models import small
from tests.stages.text.classifiers.running import classified

from gristmill import LocalExecutor, Pipeline
from gristmill.ledger.entry import Entry
from gristmill.text import JsonlReader, JsonlWriter, SequenceClassifier


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, list[str]]:
    """A folder with a model whose labels differ between texts, a folder with documents, and their texts."""
    seed = random.randrange(2**31)
    print("seed", seed)
    folder = tmp_path_factory.mktemp("corpus")
    documents = small.texts(random.Random(seed), 60)
    model = small.save_classifier("bert", folder / "model", seed, ("bad", "good"))
    spread = small.reference_logits(model, folder / "model", documents)
    middle = float((spread[:, 0] - spread[:, 1]).mean())
    model.classifier.bias.data += model.classifier.bias.data.new_tensor([-middle / 2, middle / 2])
    model.save_pretrained(str(folder / "model"))
    (folder / "in").mkdir()
    for number in range(4):
        lines = [json.dumps({"text": text, "n": n}) for n, text in enumerate(documents) if n % 4 == number]
        (folder / "in" / f"{number}.jsonl").write_text("\n".join(lines) + "\n")
    return folder / "model", folder / "in", documents


def run(corpus: tuple[Path, Path, list[str]], out: Path, workers: int, gpus: int = 0) -> Any:
    classifier = SequenceClassifier(str(corpus[0]), filter_by=["good"], score_field="scores", max_chars=60)
    classifier = classifier.with_({"SequenceClassifier model": {"num_workers": workers}})
    stages = [JsonlReader(str(corpus[1])), classifier, JsonlWriter(str(out))]
    return Pipeline("p", stages=stages).run(LocalExecutor(config={"num_cpus": 5, "num_gpus": gpus, "view": "off"}))


def files(out: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(out)): path.read_bytes()
        for path in sorted(out.rglob("*.jsonl"))
        if not path.relative_to(out).parts[0].startswith("_")
    }


def test_documents_are_labelled_filtered_and_accounted_for(
    corpus: tuple[Path, Path, list[str]], tmp_path: Path
) -> None:
    folder, _, documents = corpus
    expected = classified(SequenceClassifier(str(folder), max_chars=60), list(documents)).data["label"].to_pylist()
    assert set(expected) == {"bad", "good"}

    result = run(corpus, tmp_path / "one", 1)

    written = {
        row["n"]: row
        for path, content in files(tmp_path / "one").items()
        if not path.startswith("excluded")
        for row in map(json.loads, content.splitlines())
    }
    assert {n: row["text"] for n, row in written.items()} == {
        n: text for n, text in enumerate(documents) if expected[n] == "good"
    }
    assert {tuple(row) for row in written.values()} == {("text", "n", "label", "scores")}
    reasons = Counter(
        json.loads(line)["excluded_reason"]
        for path, content in files(tmp_path / "one").items()
        if path.startswith("excluded")
        for line in content.splitlines()
    )
    assert reasons == {"bad": expected.count("bad")}
    cut = sum(len(text) > 60 for text in documents)
    assert f"SequenceClassifier tokenizer: documents cut for the model {cut}" in result.summary()
    assert "SequenceClassifier model: token budget" in result.summary()
    assert result.ledger.total().notes.keys() == {("SequenceClassifier model", "token_budget")}

    run(corpus, tmp_path / "four", 4)
    assert files(tmp_path / "four") == files(tmp_path / "one")


def test_two_tasks_in_flight_give_the_bytes_of_one(corpus: tuple[Path, Path, list[str]], tmp_path: Path) -> None:
    """With a GPU, the model's stage is asynchronous. The GPU is a logical one here: the model runs on the CPU."""
    one = run(corpus, tmp_path / "one", 1)
    for workers in (1, 2):
        several = run(corpus, tmp_path / f"{workers} on GPUs", workers, gpus=workers)
        assert files(tmp_path / f"{workers} on GPUs") == files(tmp_path / "one")
        assert several.ledger.total().notes == one.ledger.total().notes
        assert several.ledger.total().counters == one.ledger.total().counters
    names = [step.name for step in several.record.steps]
    assert "SequenceClassifier model" in names, "on a GPU it is a step of its own"


def test_notes_of_blocks_are_kept_and_joined() -> None:
    one, other = Entry(), Entry()
    one.note("a", "token_budget", 64)
    other.note("a", "token_budget", 32)
    other.note("a", "token_budget", 64)
    assert Entry.of_plain(other.plain()).notes == {("a", "token_budget"): [32, 64]}
    one.add(other)
    assert one.notes == {("a", "token_budget"): [32, 64]}
    assert "notes" not in Entry().plain()
