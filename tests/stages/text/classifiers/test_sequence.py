"""Any checkpoint as a classifier: columns, labels, limits, and errors at planning."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.models import small
from tests.stages.text.classifiers.running import classified

from gristmill import Pipeline
from gristmill.errors import ModelError
from gristmill.text import FineWebEduClassifier, JsonlReader, JsonlWriter, LabelFilter, SequenceClassifier

LABELS = ("bad", "fair", "good")


@pytest.fixture(scope="module")
def seed() -> int:
    drawn = random.randrange(2**31)
    print("seed", drawn)
    return drawn


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory, seed: int) -> tuple[Path, Any]:
    folder = tmp_path_factory.mktemp("roberta")
    return folder, small.save_classifier("roberta", folder, seed, LABELS)


def softmax(logits: Any) -> Any:
    powers = np.exp(logits)
    return powers / powers.sum(axis=1, keepdims=True)


def test_labels_and_probabilities_are_those_of_transformers(saved: tuple[Path, Any], seed: int) -> None:
    folder, model = saved
    documents = [*small.texts(random.Random(seed), 30), "fox " * 300]
    expected = softmax(small.reference_logits(model, folder, documents))

    found = classified(SequenceClassifier(str(folder), score_field="scores"), [*documents, None], n=list(range(32)))

    assert found.columns == ["text", "n", "label", "scores"]
    assert found.data["text"].to_pylist() == [*documents, None]
    assert found.data["n"].to_pylist() == list(range(32))
    assert np.abs(np.array(found.data["scores"].to_pylist())[:31] - expected).max() < 1e-5
    assert found.data["label"].to_pylist()[:31] == [LABELS[k] for k in expected.argmax(axis=1)]


def test_the_model_reads_no_more_than_it_may(saved: tuple[Path, Any], seed: int) -> None:
    folder, model = saved
    documents = ["the quick brown fox", "the quick brown fox jumps over lazy dogs"]
    expected = softmax(small.reference_logits(model, folder, [text[:12] for text in documents], longest=4))

    classifier = SequenceClassifier(str(folder), score_field="scores", max_chars=12, max_seq_length=4)
    stages = classifier.flatten()
    found = classified(classifier, documents)

    assert np.abs(np.array(found.data["scores"].to_pylist()) - expected).max() < 1e-5
    assert found.data["text"].to_pylist() == documents
    assert found.account.counters["documents cut for the model"] == 2
    assert found.account.counters["characters not read by the model"] == sum(len(text) - 12 for text in documents)
    assert found.account.counters["tokens not read by the model"] > 0
    assert [stage.name for stage in stages] == ["SequenceClassifier tokenizer", "SequenceClassifier model"]


def test_several_labels_per_text(tmp_path: Path, seed: int) -> None:
    model = small.save_classifier("bert", tmp_path, seed, LABELS, problem_type="multi_label_classification")
    documents = small.texts(random.Random(seed), 20)
    expected = 1 / (1 + np.exp(-small.reference_logits(model, tmp_path, documents)))

    found = classified(SequenceClassifier(str(tmp_path), score_field="scores"), list(documents))

    assert np.abs(np.array(found.data["scores"].to_pylist()) - expected).max() < 1e-5
    assert found.data["label"].to_pylist() == [
        [label for label, share in zip(LABELS, row, strict=True) if share >= 0.5] for row in expected
    ]


def test_one_number_is_a_score_without_labels(tmp_path: Path, seed: int) -> None:
    model = small.save_classifier("bert", tmp_path, seed, ("score",))
    documents = small.texts(random.Random(seed), 20)
    expected = small.reference_logits(model, tmp_path, documents)[:, 0]

    found = classified(SequenceClassifier(str(tmp_path), score_field="quality"), list(documents))

    assert found.columns == ["text", "quality"]
    assert np.abs(np.array(found.data["quality"].to_pylist()) - expected).max() < 1e-5
    with pytest.raises(ModelError, match="name the column for it"):
        classified(SequenceClassifier(str(tmp_path)), ["text"])


def test_education_scores_are_those_of_transformers(tmp_path: Path, seed: int) -> None:
    import torch

    model = small.save_classifier("bert", tmp_path, seed, ("score",), max_position_embeddings=512)
    documents = small.texts(random.Random(seed), 40)
    with torch.no_grad():  # scores on both sides of the limits
        logits = small.reference_logits(model, tmp_path, documents)[:, 0]
        factor = 4 / max(1e-3, float(logits.std()))
        model.classifier.weight.mul_(factor)
        model.classifier.bias.copy_(2.5 + factor * (model.classifier.bias - float(logits.mean())))
    model.save_pretrained(str(tmp_path))
    expected = small.reference_logits(model, tmp_path, documents)[:, 0]
    assert (expected < 0).any()
    assert (expected > 5).any()

    found = classified(FineWebEduClassifier(model=str(tmp_path)), list(documents)).data

    scores = np.array(found["fineweb-edu-score-float"].to_pylist())
    assert np.abs(scores - expected.clip(0, 5)).max() < 1e-4
    assert found["fineweb-edu-score-int"].to_pylist() == [round(score) for score in scores.tolist()]
    assert found["fineweb-edu-score-label"].to_pylist() == [
        "high_quality" if score >= 2.5 else "low_quality" for score in scores
    ]


def test_a_checkpoint_with_labels_gives_no_education_score(tmp_path: Path, seed: int) -> None:
    small.save_classifier("bert", tmp_path, seed, LABELS, max_position_embeddings=512)
    with pytest.raises(ModelError, match="has 3 labels, where one number is expected"):
        classified(FineWebEduClassifier(model=str(tmp_path)), ["text"])


def test_tokens_are_kept_and_taken_from_a_column(saved: tuple[Path, Any], seed: int) -> None:
    folder, _ = saved
    documents = small.texts(random.Random(seed), 12)
    first = classified(SequenceClassifier(str(folder), score_field="scores", keep_tokens=True), list(documents)).data

    ready = classified(
        SequenceClassifier(str(folder), score_field="scores", use_existing_tokens=True),
        ["another text"] * 12,
        input_ids=first["input_ids"].combine_chunks(),
    ).data

    assert pa.types.is_large_list(first.schema.field("input_ids").type)
    assert ready["scores"].to_pylist() == first["scores"].to_pylist()
    assert ready.column_names == ["text", "label", "scores"]


def test_labels_decide_which_documents_stay() -> None:
    from gristmill.tasks import DocumentBatch

    table = pa.table(
        {"label": ["a", None, "b", "a"], "score": [0.1, 0.2, 0.3, 0.4], "many": [["a"], [], ["b", "c"], ["c"]]}
    )
    kept = LabelFilter(["a"], "label", "score").process(DocumentBatch(data=table))
    assert kept.data["score"].to_pylist() == [0.1, 0.4]
    (dropped,) = kept.account.dropped
    assert dropped.reasons == ["no label", "b"]
    assert dropped.scores == [0.2, 0.3]
    kept = LabelFilter(["b"], "many").process(DocumentBatch(data=table))
    assert kept.data["score"].to_pylist() == [0.3]
    assert kept.account.dropped[0].reasons == ["a", "no label", "c"]
    with pytest.raises(ValueError, match="must be a list of labels"):
        LabelFilter("a", "label")


def test_a_missing_model_is_an_error_at_planning_that_names_the_stage(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": "a"}\n')
    pipeline = Pipeline(
        "p", stages=[JsonlReader(str(tmp_path)), SequenceClassifier("./nothing"), JsonlWriter(str(tmp_path / "out"))]
    )
    with pytest.raises(
        ModelError, match=r"stage 2 'SequenceClassifier tokenizer': model './nothing': there is no folder"
    ):
        pipeline.run()
    assert not (tmp_path / "out").exists()
    assert "cannot run: stage 2" in pipeline.describe()


def test_a_yaml_file_names_classifiers_and_folders_beside_it(saved: tuple[Path, Any], tmp_path: Path) -> None:
    folder, _ = saved
    (tmp_path / "model").symlink_to(folder)
    (tmp_path / "in.jsonl").write_text('{"text": "a"}\n')
    (tmp_path / "p.yaml").write_text(
        "stages:\n- JsonlReader: {file_paths: in.jsonl}\n"
        "- SequenceClassifier: {model: ./model, filter_by: [good], model_inference_batch_size: 8}\n"
        "- JsonlWriter: {path: out}\n"
    )
    pipeline = Pipeline.from_yaml(tmp_path / "p.yaml")
    classifier: Any = pipeline.stages[1]
    assert Path(classifier.model_name) == tmp_path / "model"
    assert "without a GPU cpus=1" in pipeline.describe()
    again: Any = Pipeline.from_yaml(pipeline.to_yaml()).stages[1]
    assert (again.model, again.filter_by) == (classifier.model, ["good"])
