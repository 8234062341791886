"""Image models on a GPU: embeddings close to those of a CPU, in batches of any size."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest
from tests.models.vision import checkpoints

from gristmill.models.checkpoint import Checkpoint
from gristmill.models.vision.loading import VisionSpec, load
from gristmill.models.vision.rows import Items, RowEngine

torch = pytest.importorskip("torch")
if not torch.cuda.is_available():
    pytest.skip("there is no GPU", allow_module_level=True)


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("kind", checkpoints.KINDS)
def test_embeddings_are_close_to_those_of_a_cpu(kind: str, compiled: bool, tmp_path: Path) -> None:
    seed = random.randrange(2**31)
    print("seed", seed)
    checkpoints.save(kind, tmp_path, seed)
    checkpoints.preprocessor(tmp_path, **checkpoints.config_of(kind))
    checkpoint = Checkpoint(str(tmp_path))
    spec = VisionSpec(checkpoint, compiled=compiled)
    images = checkpoints.pictures(random.Random(seed), 21)
    items = Items([np.stack([spec.preprocessing.pixels(one) for one in images])])
    expected = RowEngine(load(spec), 8).run(items)

    exact = RowEngine(load(VisionSpec(checkpoint, "float32", compiled), "cuda"), 8).run(items)
    found = RowEngine(load(spec, "cuda"), 8).run(items)

    assert np.abs(exact - expected).max() < 2e-3 * np.abs(expected).max()  # products in TF32 are allowed
    lengths = np.linalg.norm(found, axis=1) * np.linalg.norm(expected, axis=1)
    assert ((found * expected).sum(axis=1) / lengths).min() > 0.999


def test_batches_of_other_sizes_are_not_compiled_again(tmp_path: Path) -> None:
    seed = random.randrange(2**31)
    print("seed", seed)
    checkpoints.save("clip", tmp_path, seed)
    checkpoints.preprocessor(tmp_path, **checkpoints.config_of("clip"))
    spec = VisionSpec(Checkpoint(str(tmp_path)))
    images = checkpoints.pictures(random.Random(seed), 70)
    pixels = np.stack([spec.preprocessing.pixels(one) for one in images])
    engine = RowEngine(load(spec, "cuda"), 64)
    torch._dynamo.utils.counters.clear()

    rows = [engine.run(Items([pixels[:count]])) for count in (64, 70, 17, 3)]

    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1
    for some in rows[1:]:
        shared = min(len(some), 64)
        cosines = (some[:shared] * rows[0][:shared]).sum(axis=1)
        lengths = np.linalg.norm(some[:shared], axis=1) * np.linalg.norm(rows[0][:shared], axis=1)
        assert (cosines / lengths).min() > 0.999
