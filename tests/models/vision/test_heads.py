"""Heads of embeddings: layouts, numbers, and errors."""

from __future__ import annotations

import random
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from gristmill.errors import ModelError
from gristmill.models.vision.heads import ScoreHead


@pytest.fixture
def draw() -> np.random.Generator:
    seed = random.randrange(2**31)
    print("seed", seed)
    return np.random.default_rng(seed)


def dense(draw: np.random.Generator, name: str, *widths: int, numbers: list[int] | None = None) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for place, (inputs, outputs) in enumerate(pairwise(widths)):
        number = place if numbers is None else numbers[place]
        made[f"{name}.{number}.weight"] = draw.normal(0, inputs**-0.5, (outputs, inputs)).astype(np.float32)
        made[f"{name}.{number}.bias"] = draw.normal(0, 0.5, outputs).astype(np.float32)
    return made


def unit(rows: Any) -> Any:
    rows = rows.astype(np.float64)
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def head(folder: Path, tensors: dict[str, Any]) -> ScoreHead:
    save_file(tensors, folder / "head.safetensors")
    return ScoreHead(str(folder / "head.safetensors"))


def test_a_linear_head(tmp_path: Path, draw: np.random.Generator) -> None:
    tensors = {"weight": draw.normal(size=(1, 20)).astype(np.float32), "bias": np.array([0.3], np.float32)}
    one = head(tmp_path, tensors)
    rows = draw.normal(size=(7, 20)).astype(np.float32)

    assert one.check() == 20
    expected = unit(rows) @ tensors["weight"][0].astype(np.float64) + 0.3
    assert np.allclose(one.network().scores(rows), expected, atol=1e-6)


def test_layers_without_activations(tmp_path: Path, draw: np.random.Generator) -> None:
    tensors = dense(draw, "layers", 20, 30, 12, 6, 1, numbers=[0, 2, 4, 7])
    rows = draw.normal(size=(7, 20)).astype(np.float32)

    x = unit(rows)
    for number in (0, 2, 4, 7):
        x = x @ tensors[f"layers.{number}.weight"].T.astype(np.float64) + tensors[f"layers.{number}.bias"]
    assert np.allclose(head(tmp_path, tensors).network().scores(rows), x[:, 0], atol=1e-6)


def test_dense_layers_with_activations(tmp_path: Path, draw: np.random.Generator) -> None:
    tensors = dense(draw, "dense", 20, 30, 40, 10, 1)
    tensors |= {"mean": draw.normal(size=20).astype(np.float32), "variance": draw.random(20).astype(np.float32) + 0.1}
    rows = draw.normal(size=(9, 20)).astype(np.float32)

    x = (unit(rows) - tensors["mean"]) / np.sqrt(tensors["variance"].astype(np.float64))
    for number in range(3):
        x = np.maximum(0, x @ tensors[f"dense.{number}.weight"].T.astype(np.float64) + tensors[f"dense.{number}.bias"])
    x = 1 / (1 + np.exp(-(x @ tensors["dense.3.weight"].T.astype(np.float64) + tensors["dense.3.bias"])))
    found = head(tmp_path, tensors).network().scores(rows)
    assert np.allclose(found, x[:, 0], rtol=1e-5)
    assert 0 < found.min() < found.max() < 1


def test_a_score_does_not_depend_on_the_embeddings_beside_it(tmp_path: Path, draw: np.random.Generator) -> None:
    network = head(tmp_path, dense(draw, "layers", 512, 64, 1)).network()
    rows = draw.normal(size=(100, 512)).astype(np.float32)
    whole = network.scores(rows)
    assert np.array_equal(np.concatenate([network.scores(rows[k : k + 1]) for k in range(100)]), whole)
    assert np.array_equal(network.scores(rows * 8), whole)  # they are scaled to length one
    assert np.isfinite(network.scores(np.zeros((1, 512), np.float32))).all()


@pytest.mark.parametrize(
    ("tensors", "reason"),
    [
        ({"weight": np.zeros((2, 8), np.float32), "bias": np.zeros(2, np.float32)}, "makes 2 numbers"),
        ({"weight": np.zeros((1, 8), np.float32), "bias": np.zeros(3, np.float32)}, "of the shape"),
        ({"kernel": np.zeros((1, 8), np.float32)}, "kernel is not known"),
        ({"layers.0.weight": np.zeros((1, 8), np.float32)}, "of the shape"),
        ({"layers.0.bias": np.zeros(1, np.float32)}, "not those of one of the known layouts"),
        ({"dense.0.weight": np.zeros((1, 8), np.float32), "dense.0.bias": np.zeros(1, np.float32)}, "known layouts"),
    ],
)
def test_heads_that_cannot_be_used_are_errors(tensors: dict[str, Any], reason: str, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=reason):
        head(tmp_path, tensors).check()


def test_files_that_are_missing_or_damaged_are_errors(tmp_path: Path, draw: np.random.Generator) -> None:
    with pytest.raises(ModelError, match="there is no file"):
        ScoreHead(str(tmp_path / "none.safetensors")).check()
    with pytest.raises(ModelError, match=r"there is no model\.safetensors"):
        ScoreHead(str(tmp_path)).check()
    one = head(tmp_path, dense(draw, "layers", 8, 4, 1))
    path = tmp_path / "head.safetensors"
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(ModelError, match="damaged or cut"):
        one.check()
    broken = dense(draw, "layers", 8, 4, 1)
    broken["layers.0.weight"][1, 2] = np.inf
    with pytest.raises(ModelError, match="not finite"):
        head(tmp_path, broken).network()
