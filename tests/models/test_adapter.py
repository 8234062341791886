"""Adapters and the prefix of prompts, against PEFT and transformers."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.models import llama, small

from gristmill.errors import ModelError
from gristmill.models.checkpoint import Checkpoint
from gristmill.models.engine import InferenceEngine
from gristmill.models.loading import ModelSpec, load
from gristmill.models.nvidia import NextToken
from gristmill.models.prompt import Prompt, PromptTokenizer
from gristmill.models.tokenizer import ReadLimits, load_tokenizer

TOLERANCE = 2e-5
ADAPTERS: dict[str, dict[str, Any]] = {
    "plain": {},
    "by the square root of the rank": {"use_rslora": True},
    "a rank of its own for some layers": {"rank_pattern": {"q_proj": 2}, "alpha_pattern": {"q_proj": 6}},
    "weights that are replaced": {"modules_to_save": ["lm_head"]},
}


@pytest.mark.parametrize("which", ADAPTERS)
def test_an_adapter_changes_logits_as_peft_does(which: str, tmp_path: Path) -> None:
    seed = random.randrange(2**31)
    print("seed", seed)
    base, adapter = tmp_path / "base", tmp_path / "adapter"
    model = llama.save_llama(base, seed)
    documents = small.texts(random.Random(seed), 12)
    plain = llama.next_logits(model, base, documents)
    adapted = llama.save_adapter(model, adapter, seed, **ADAPTERS[which])
    expected = llama.next_logits(adapted, base, documents).log_softmax(dim=1).numpy()
    spec = ModelSpec(Checkpoint(str(base)), NextToken((5, 7)), Checkpoint(str(adapter)))
    spec.check()
    tokens, _ = load_tokenizer(spec.checkpoint).tokens(documents, ReadLimits())

    found = InferenceEngine(load(spec), max_batch=5).run(tokens)

    assert np.abs(expected - plain.log_softmax(dim=1).numpy()).max() > 0.1
    assert found[:, 0].tolist() == expected.argmax(axis=1).tolist()
    assert np.abs(found[:, 1:] - expected[:, [5, 7]]).max() < TOLERANCE


def test_a_common_beginning_that_is_computed_once_changes_nothing(tmp_path: Path) -> None:
    seed = random.randrange(2**31)
    print("seed", seed)
    rng = random.Random(seed)
    model = llama.save_llama(tmp_path, seed)
    prompt = Prompt(*llama.prompt().split("{text}"))
    documents = [*small.texts(rng, 12), "", " spaces ", "\n\nlines\n\n"]
    expected = llama.next_logits(model, tmp_path, [prompt.around(text) for text in documents]).log_softmax(dim=1)
    checkpoint = Checkpoint(str(tmp_path))
    prompts = PromptTokenizer(load_tokenizer(checkpoint), prompt, ReadLimits())
    tokens, cut = prompts.tokens(documents)
    spec = ModelSpec(checkpoint, NextToken((9,)), prefix=prompts.prefix)

    found = InferenceEngine(load(spec), max_batch=rng.randint(1, 6)).run(tokens)

    assert len(prompts.prefix) > 100 > tokens.lengths.min()
    assert cut.counters() == {}
    assert found[:, 0].tolist() == expected.argmax(dim=1).tolist()
    assert np.abs(found[:, 1] - expected[:, 9].numpy()).max() < TOLERANCE


def test_the_text_of_a_prompt_is_cut_and_not_its_end(tmp_path: Path) -> None:
    small.tokenizer_of("bytes", tmp_path)
    tokenizer = load_tokenizer(Checkpoint(str(tmp_path)))
    prompt = Prompt(*llama.prompt().split("{text}"))
    whole, _ = PromptTokenizer(tokenizer, prompt, ReadLimits()).tokens(["fox " * 500])
    short = PromptTokenizer(tokenizer, prompt, ReadLimits(tokens=400))

    tokens, cut = short.tokens(["fox " * 500, "fox"])

    assert tokens.lengths[0] + len(short.prefix) == 400
    assert tokens.ids[: tokens.offsets[1]][-12:].tolist() == whole.ids[-12:].tolist()
    assert cut.counters() == {
        "documents cut for the model": 1,
        "tokens not read by the model": int(whole.lengths[0] - tokens.lengths[0]),
    }
    with pytest.raises(ModelError, match="the prompt itself has"):
        PromptTokenizer(tokenizer, prompt, ReadLimits(tokens=100))


def test_an_adapter_of_another_model_is_an_error(tmp_path: Path) -> None:
    model = llama.save_llama(tmp_path / "base", 1)
    llama.save_adapter(model, tmp_path / "adapter", 1)
    llama.save_llama(tmp_path / "other", 1, num_hidden_layers=1)
    adapter = Checkpoint(str(tmp_path / "adapter"))
    with pytest.raises(ModelError, match="does not fit the model"):
        ModelSpec(Checkpoint(str(tmp_path / "other")), NextToken(), adapter).check()
    with pytest.raises(ModelError, match=r"has no adapter_config\.json"):
        ModelSpec(Checkpoint(str(tmp_path / "base")), NextToken(), Checkpoint(str(tmp_path / "other"))).check()
