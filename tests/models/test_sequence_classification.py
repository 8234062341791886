"""Scores of all architectures against transformers in float32, for any batching."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest
from tests.models import small

from gristmill.models.checkpoint import Checkpoint
from gristmill.models.engine import InferenceEngine
from gristmill.models.loading import ModelSpec, load
from gristmill.models.tokenizer import ReadLimits, load_tokenizer, token_limit

TOLERANCE = 1e-5
"""Of a logit in float32 on the CPU. Logits of these models are of the order of 1."""


@pytest.mark.parametrize("kind", small.ARCHITECTURES)
def test_logits_are_those_of_transformers_for_any_batching(kind: str, tmp_path: Path) -> None:
    seed = random.randrange(2**31)
    print("seed", seed)
    rng = random.Random(seed)
    model = small.save_classifier(kind, tmp_path, seed)
    documents = [*small.texts(rng, 24), "", "a" * 3000]
    expected = small.reference_logits(model, tmp_path, documents)
    checkpoint = Checkpoint(str(tmp_path))
    spec = ModelSpec(checkpoint)
    spec.check()
    tokens, _ = load_tokenizer(checkpoint).tokens(documents, ReadLimits(tokens=token_limit(checkpoint, None)))
    engine = InferenceEngine(load(spec), max_batch=rng.randint(1, 9), token_budget=rng.choice((64, 200, 4096)))

    found = engine.run(tokens)

    assert expected.std() > 0.05
    assert np.abs(found - expected).max() < TOLERANCE
