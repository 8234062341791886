"""Embeddings of captions, and their similarity to images, are those of transformers."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.models import small
from tests.models.vision import checkpoints

from gristmill.errors import ModelError
from gristmill.models.checkpoint import Checkpoint
from gristmill.models.vision.rows import Items, RowEngine
from gristmill.models.vision.texts import TextSpec, TextTokens


@pytest.fixture
def seed() -> int:
    drawn = random.randrange(2**31)
    print("seed", drawn)
    return drawn


def reference(model: Any, folder: Path, texts: list[str]) -> Any:
    import torch
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(str(folder))
    inputs = tokenizer(texts, padding="max_length", truncation=True, max_length=16, return_tensors="pt")
    with torch.inference_mode():
        found = model.get_text_features(input_ids=inputs["input_ids"])
    return (found.pooler_output if hasattr(found, "pooler_output") else found).numpy()


@pytest.mark.parametrize("kind", ["clip", "siglip"])
def test_embeddings_of_captions_are_those_of_transformers(kind: str, tmp_path: Path, seed: int) -> None:
    model = checkpoints.save(kind, tmp_path, seed)
    texts = ["", "fox", *small.texts(random.Random(seed), 8)]
    spec = TextSpec(Checkpoint(str(tmp_path)))
    spec.check()

    ids, _ = TextTokens(spec).of(texts)
    found = RowEngine(spec.load(), 3, "caption").run(Items([ids]))

    expected = reference(model, tmp_path, texts)
    assert np.abs(found - expected).max() < 2e-5 * np.abs(expected).max()
    assert np.abs(expected[1] - expected[2]).max() > 1e-3


def test_the_end_of_a_text_in_old_configurations(tmp_path: Path, seed: int) -> None:
    """Their eos_token_id is 2, and the end is the token with the highest id."""
    model = checkpoints.save("clip", tmp_path, seed)
    model.config.text_config.eos_token_id = model.text_model.eos_token_id = 2
    model.config.save_pretrained(tmp_path)
    spec = TextSpec(Checkpoint(str(tmp_path)))
    assert spec.shape.end == 2

    draw = np.random.default_rng(seed)
    ids = draw.permuted(np.tile(np.arange(16), (5, 1)), axis=1).astype(np.int32)
    found = RowEngine(spec.load(), 3, "caption").run(Items([ids]))

    import torch

    with torch.inference_mode():
        expected = model.get_text_features(input_ids=torch.from_numpy(ids).long())
    expected = (expected.pooler_output if hasattr(expected, "pooler_output") else expected).numpy()
    assert np.abs(found - expected).max() < 2e-5 * np.abs(expected).max()


def test_long_captions_are_cut_and_counted(tmp_path: Path, seed: int) -> None:
    checkpoints.save("clip", tmp_path, seed)
    tokens = TextTokens(TextSpec(Checkpoint(str(tmp_path))))

    ids, cut = tokens.of(["fox", "the quick brown fox jumps over the lazy dog " * 9, None])

    assert ids.shape == (3, 16)
    assert cut.documents == 1
    assert cut.tokens > 0
    assert ids[1, -1] == ids[0][ids[0] != 0].max() or ids[1, -1] in ids[0]  # the end is kept


@pytest.mark.parametrize("kind", ["clip vision", "dinov2"])
def test_a_checkpoint_without_a_text_model_is_an_error_at_planning(kind: str, tmp_path: Path, seed: int) -> None:
    checkpoints.save(kind, tmp_path, seed)
    with pytest.raises(ModelError, match="has no text model"):
        TextSpec(Checkpoint(str(tmp_path))).check()


def test_a_checkpoint_without_a_tokenizer_is_an_error_at_planning(tmp_path: Path, seed: int) -> None:
    checkpoints.save("clip", tmp_path, seed)
    for path in tmp_path.glob("tokenizer*"):
        path.unlink()
    with pytest.raises(ModelError, match="has no tokenizer"):
        TextSpec(Checkpoint(str(tmp_path))).check()
