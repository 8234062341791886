"""Llama Guard with an adapter against transformers and PEFT, and what its answers mean."""

from __future__ import annotations

import itertools
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.models import llama, small
from tests.stages.text.classifiers.running import classified

from gristmill.errors import ModelError
from gristmill.stages.text.classifiers.answers import CATEGORIES, label_of
from gristmill.text import AegisClassifier, InstructionDataGuardClassifier


@pytest.fixture(scope="module")
def seed() -> int:
    drawn = random.randrange(2**31)
    print("seed", drawn)
    return drawn


@pytest.fixture(scope="module")
def guard(tmp_path_factory: pytest.TempPathFactory, seed: int) -> tuple[Path, Any]:
    """A folder with the base model, the adapter and the prompt, and the adapted model."""
    folder = tmp_path_factory.mktemp("guard")
    model = llama.save_llama(folder / "base", seed)
    (folder / "prompt.txt").write_text(llama.prompt())
    return folder, llama.save_adapter(model, folder / "adapter", seed)


def places(folder: Path) -> dict[str, str]:
    return {"base_model": str(folder / "base"), "aegis_variant": str(folder / "adapter")}


def test_answers_and_scores_are_those_of_the_adapted_model(guard: tuple[Path, Any], seed: int) -> None:
    folder, model = guard
    documents = small.texts(random.Random(seed), 10)
    prompts = [llama.prompt().replace("{text}", text) for text in documents]
    logits = llama.next_logits(model, folder / "base", prompts).log_softmax(dim=1)
    written = llama.generated(model, folder / "base", prompts, 8)

    classifier = AegisClassifier(
        **places(folder), prompt_path=str(folder / "prompt.txt"), keep_raw_output=True, score_field="unsafe"
    )
    found = classified(classifier, list(documents)).data

    raw = found["_aegis_raw_pred"].to_pylist()
    assert all(part in parts for parts, part in zip(written, raw, strict=True))
    assert found["aegis_pred"].to_pylist() == [label_of(parts[-1], True) for parts in written]
    safe = first_token(folder / "base", "safe")
    assert np.abs(np.array(found["unsafe"].to_pylist()) - (1 - logits[:, safe].exp().numpy())).max() < 1e-5
    assert found["text"].to_pylist() == documents


def first_token(folder: Path, word: str) -> int:
    from transformers import AutoTokenizer

    return int(AutoTokenizer.from_pretrained(str(folder))(word, add_special_tokens=False)["input_ids"][0])


@pytest.mark.parametrize(
    "answer", ["safe", "unsafe\nO3", "unsafe\nO12", "unsafe\nO3,O5", "unsafe", "unsafe\nP1", "maybe"]
)
def test_the_label_of_an_answer_is_found_in_as_few_tokens_as_it_takes(answer: str) -> None:
    pytest.importorskip("nemo_curator")
    from nemo_curator.stages.text.classifiers.aegis import PostProcessAegisResponsesStage

    expected = PostProcessAegisResponsesStage()._parse_response(answer)
    labels = [label_of(answer[:end], end == len(answer)) for end in range(1, len(answer) + 1)]

    assert labels[-1] == expected
    assert set(labels) <= {None, expected}
    assert expected != "safe" or labels[-2] is None


def test_a_model_that_answers_with_a_category(tmp_path: Path, seed: int) -> None:
    """A model whose next token follows from the last one alone, with layers that change nothing."""
    import torch

    model = llama.save_llama(tmp_path / "base", seed, tie_word_embeddings=False)
    tokens = [first_token(tmp_path / "base", word) for word in ("]",)]
    answer = tokenized(tmp_path / "base", "unsafe\nO12")
    path = [tokens[0], *answer, 3]
    with torch.no_grad():
        for layer in model.model.layers:
            layer.self_attn.o_proj.weight.zero_()
            layer.mlp.down_proj.weight.zero_()
        states = torch.nn.functional.normalize(model.model.embed_tokens.weight, dim=1)
        model.model.norm.weight.fill_(1)
        for before, after in itertools.pairwise(path):
            model.lm_head.weight[after] = 50 * states[before]
    model.save_pretrained(str(tmp_path / "base"))
    llama.save_adapter(model, tmp_path / "adapter", seed, target_modules=["k_proj"])
    (tmp_path / "prompt.txt").write_text("Task\n\nUser: {text}\n\n[/INST]")

    classifier = AegisClassifier(**places(tmp_path), prompt_path=str(tmp_path / "prompt.txt"), filter_by=["safe"])
    stages = classifier.flatten()
    found = classified(
        AegisClassifier(**places(tmp_path), prompt_path=str(tmp_path / "prompt.txt")), ["the fox", "", None]
    )

    assert found.data["aegis_pred"].to_pylist() == ["O12"] * 3
    kept = stages[-1].process(found)
    assert kept.num_items == 0
    assert kept.account.dropped[0].reasons == ["O12"] * 3


def tokenized(folder: Path, text: str) -> list[int]:
    from transformers import AutoTokenizer

    return list(AutoTokenizer.from_pretrained(str(folder))(text, add_special_tokens=False)["input_ids"])


def test_without_a_prompt_planning_says_where_it_is() -> None:
    with pytest.raises(ModelError, match="needs the prompt that its adapter was trained with"):
        AegisClassifier().flatten()


def test_a_prompt_without_a_place_is_an_error(guard: tuple[Path, Any], tmp_path: Path) -> None:
    (tmp_path / "prompt.txt").write_text("no place")
    classifier = AegisClassifier(**places(guard[0]), prompt_path=str(tmp_path / "prompt.txt"))
    with pytest.raises(ModelError, match=r"must have \{text\} once"):
        classifier.flatten()[0].check_needs()


def test_poisoning_scores_are_those_of_curator(guard: tuple[Path, Any], tmp_path: Path, seed: int) -> None:
    pytest.importorskip("nemo_curator")
    import torch
    from nemo_curator.stages.text.classifiers.aegis import InstructionDataGuardNet
    from transformers import AutoTokenizer

    folder, model = guard
    net = InstructionDataGuardNet(small.SHAPE["hidden_size"]).eval()
    with torch.no_grad():
        for weight in net.parameters():
            weight.mul_(4)
    net.save_pretrained(str(tmp_path))
    documents = small.texts(random.Random(seed), 20)
    tokenizer = AutoTokenizer.from_pretrained(str(folder / "base"))
    expected = []
    for text in documents:
        with torch.inference_mode():
            states = model(**tokenizer(text, return_tensors="pt"), output_hidden_states=True).hidden_states[-1]
            expected.append(float(net(states[:, -1])))

    classifier = InstructionDataGuardClassifier(**places(folder), model=str(tmp_path), filter_by=[False])
    found = classified(InstructionDataGuardClassifier(**places(folder), model=str(tmp_path)), list(documents)).data

    scores = np.array(found["instruction_data_guard_poisoning_score"].to_pylist())
    assert np.abs(scores - expected).max() < 1e-5
    assert found["is_poisoned"].to_pylist() == [score >= 0.5 for score in expected]
    assert classifier.flatten()[-1].filter_by == [False]


def test_there_are_thirteen_categories() -> None:
    assert tuple(f"O{number}" for number in range(1, 14)) == CATEGORIES
