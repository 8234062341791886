"""NVIDIA's classifiers against the classes of NeMo Curator that made the checkpoints."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.models import nvidia, small
from tests.stages.text.classifiers.running import classified

from gristmill.errors import ModelError
from gristmill.text import (
    ContentTypeClassifier,
    DomainClassifier,
    MultilingualDomainClassifier,
    PromptTaskComplexityClassifier,
    QualityClassifier,
)

pytest.importorskip("nemo_curator")
TOLERANCE = 1e-5
CLASSIFIERS = {
    QualityClassifier: ("quality_pred", 6000, 1024, "nvidia/quality-classifier-deberta"),
    ContentTypeClassifier: ("content_pred", 6000, 1024, "nvidia/content-type-classifier-deberta"),
    DomainClassifier: ("domain_pred", 2000, 512, "nvidia/domain-classifier"),
    MultilingualDomainClassifier: ("multilingual_domain_pred", 2000, 512, "nvidia/multilingual-domain-classifier"),
}


@pytest.fixture(scope="module")
def seed() -> int:
    drawn = random.randrange(2**31)
    print("seed", drawn)
    return drawn


@pytest.fixture(scope="module")
def domains(tmp_path_factory: pytest.TempPathFactory, seed: int) -> tuple[Path, Any]:
    folder = tmp_path_factory.mktemp("domains")
    return folder, nvidia.save_first_token(folder, seed)


@pytest.fixture(scope="module")
def prompts(tmp_path_factory: pytest.TempPathFactory, seed: int) -> tuple[Path, Any]:
    folder = tmp_path_factory.mktemp("prompts")
    return folder, nvidia.save_prompt_classifier(folder, seed)


@pytest.mark.parametrize("kind", CLASSIFIERS)
def test_probabilities_and_labels_are_those_of_curator(kind: Any, domains: tuple[Path, Any], seed: int) -> None:
    folder, model = domains
    label_field, max_chars, longest, _ = CLASSIFIERS[kind]
    documents = [*small.texts(random.Random(seed), 30), "", " ".join(random.Random(seed).choices(small.WORDS, k=3000))]
    expected = nvidia.scored(model, folder, [text[:max_chars] for text in documents], longest).numpy()

    found = classified(
        kind(model=str(folder), score_field="scores", model_inference_batch_size=5), list(documents)
    ).data

    scores = np.array(found["scores"].to_pylist())
    assert found.column_names == ["text", label_field, "scores"]
    assert np.abs(scores - expected).max() < TOLERANCE
    assert found[label_field].to_pylist() == [nvidia.DOMAINS[k] for k in expected.argmax(axis=1)]
    assert expected.std(axis=0).max() > 1e-3  # the texts differ


@pytest.mark.parametrize("kind", CLASSIFIERS)
def test_the_checkpoint_is_that_of_curator(kind: Any) -> None:
    from nemo_curator.stages.text import classifiers as curator

    theirs = getattr(curator, kind.__name__)()
    ours = kind()

    assert ours.model_name == theirs.model_identifier
    assert (ours.label_field, ours.max_chars, ours.longest) == (
        theirs.label_field,
        theirs.max_chars,
        theirs.max_seq_length,
    )
    assert ours.model_inference_batch_size == theirs.model_inference_batch_size


def test_scales_and_tasks_of_prompts_are_those_of_curator(prompts: tuple[Path, Any], seed: int) -> None:
    from nemo_curator.stages.text.classifiers.prompt_task_complexity import OUTPUT_FIELDS

    folder, model = prompts
    documents = [*small.texts(random.Random(seed), 40), ""]
    expected = nvidia.scored(model, folder, documents, 512)

    found = classified(
        PromptTaskComplexityClassifier(model=str(folder), model_inference_batch_size=7), list(documents)
    ).data

    assert found.column_names == ["text", *OUTPUT_FIELDS]
    for name, column in expected.items():
        values = found[name].to_pylist()
        if isinstance(column[0], str):
            assert values == list(column), name
        else:  # they are rounded, to three or four decimals
            most = 1e-3 if name == "task_type_prob" else 1e-4
            assert values == pytest.approx([float(value) for value in column], abs=most * 1.01), name
    assert len(set(expected["creativity_scope"])) > 1  # the texts differ


def test_a_checkpoint_without_that_head_is_an_error(tmp_path: Path, seed: int) -> None:
    small.save_classifier("deberta-v2", tmp_path, seed)
    with pytest.raises(ModelError, match=r"there is no weight fc\.weight"):
        classified(DomainClassifier(model=str(tmp_path)), ["text"])
    with pytest.raises(ModelError, match="no target_sizes"):
        classified(PromptTaskComplexityClassifier(model=str(tmp_path)), ["text"])


def test_prompts_have_no_labels_to_filter_by() -> None:
    with pytest.raises(ValueError, match="filter_by does not apply"):
        PromptTaskComplexityClassifier(filter_by=["Chatbot"])
