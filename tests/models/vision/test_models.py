"""Embeddings of image models are those of transformers; checkpoints that cannot be used are errors at planning."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.models.vision import checkpoints

from gristmill.errors import ModelError
from gristmill.models.checkpoint import Checkpoint
from gristmill.models.vision.architectures import KNOWN_SPACES, vit_shape
from gristmill.models.vision.loading import VisionSpec, load
from gristmill.models.vision.rows import Items, RowEngine

CLOSE = 2e-5
"""The largest difference from transformers, relative to the largest number."""


@pytest.fixture
def seed() -> int:
    drawn = random.randrange(2**31)
    print("seed", drawn)
    return drawn


def embedded(folder: Path, images: list[Any]) -> Any:
    spec = VisionSpec(Checkpoint(str(folder)))
    spec.check()
    made = np.stack([spec.preprocessing.pixels(one) for one in images])
    return RowEngine(load(spec), 3).run(Items([made[:2], made[2:]]))


@pytest.mark.parametrize("kind", checkpoints.KINDS)
def test_embeddings_are_those_of_transformers(kind: str, tmp_path: Path, seed: int) -> None:
    model = checkpoints.save(kind, tmp_path, seed)
    config = checkpoints.config_of(kind)
    checkpoints.preprocessor(tmp_path, **config)
    images = checkpoints.pictures(random.Random(seed), 7)

    expected = checkpoints.reference(model, config, images)
    found = embedded(tmp_path, images)

    assert found.dtype == np.float32
    assert np.abs(found - expected).max() < CLOSE * np.abs(expected).max()
    assert np.abs(expected[0] - expected[1]).max() > 1e-2 * np.abs(expected).max()  # images differ


@pytest.mark.parametrize("activation", ["gelu", "quick_gelu", "gelu_pytorch_tanh"])
def test_activations(activation: str, tmp_path: Path, seed: int) -> None:
    model = checkpoints.save("clip vision", tmp_path, seed, hidden_act=activation)
    checkpoints.preprocessor(tmp_path, **checkpoints.CLIP_CONFIG)
    images = checkpoints.pictures(random.Random(seed), 3)

    expected = checkpoints.reference(model, checkpoints.CLIP_CONFIG, images)

    assert np.abs(embedded(tmp_path, images) - expected).max() < CLOSE * np.abs(expected).max()


def test_patches_that_do_not_fill_the_image(tmp_path: Path, seed: int) -> None:
    """As in SigLIP so400m: 27 patches of 14 pixels in 384."""
    model = checkpoints.save("siglip", tmp_path, seed, image_size=32, patch_size=10)
    checkpoints.preprocessor(tmp_path, **checkpoints.SIGLIP_CONFIG)
    images = checkpoints.pictures(random.Random(seed), 3)

    expected = checkpoints.reference(model, checkpoints.SIGLIP_CONFIG, images)

    assert np.abs(embedded(tmp_path, images) - expected).max() < CLOSE * np.abs(expected).max()


def test_an_embedding_does_not_depend_on_the_images_beside_it(tmp_path: Path, seed: int) -> None:
    checkpoints.save("clip", tmp_path, seed)
    spec = VisionSpec(Checkpoint(str(tmp_path)))
    model = load(spec)
    made = np.stack([spec.preprocessing.pixels(one) for one in checkpoints.pictures(random.Random(seed), 9)])

    whole = RowEngine(model, 32).run(Items([made]))

    for size in (1, 2, 5):
        assert np.array_equal(RowEngine(model, size).run(Items([made[:4], made[4:4], made[4:]])), whole)
    assert RowEngine(model, 4).run(Items([])).shape == (0, 20)


def test_the_space_tells_models_apart(tmp_path: Path) -> None:
    shape = dict(hidden_size=1024, intermediate_size=4096, num_hidden_layers=24, num_attention_heads=16, patch_size=14)
    config: dict[str, Any] = {"model_type": "clip", "projection_dim": 768, "vision_config": shape}
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert vit_shape(Checkpoint(str(tmp_path))).space == KNOWN_SPACES["ViT-L/14"]

    config["vision_config"] = shape | {"hidden_act": "gelu"}  # LAION's models of this shape
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert vit_shape(Checkpoint(str(tmp_path))).space not in KNOWN_SPACES.values()


def _changed(**values: Any) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        config = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps(config | values))

    return change


def _cut(folder: Path) -> None:
    data = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(data[:-100])


def _pickled(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")


def _without(name: str) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        from safetensors.torch import load_file, save_file

        tensors = load_file(folder / "model.safetensors")
        del tensors[name]
        save_file(tensors, folder / "model.safetensors")

    return change


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (shutil.rmtree, "there is no folder"),
        (lambda folder: (folder / "config.json").unlink(), "has no config.json"),
        (lambda folder: (folder / "config.json").write_text("{"), "config.json is damaged"),
        (lambda folder: (folder / "model.safetensors").unlink(), "has no weights"),
        (_cut, "damaged or cut"),
        (_pickled, "only as a pickle"),
        (_changed(model_type="bert"), "not that of an image model"),
        (_changed(model_type="siglip2"), "NaFlex"),
        (_changed(hidden_size=64), "hidden_size is 64 instead of 32"),
        (_changed(num_hidden_layers=3), "num_hidden_layers is 3 instead of 2"),
        (_changed(patch_size=4), "patch_size is 4 instead of 8"),
        (_changed(projection_dim=7), "projection_dim is 7 instead of 20"),
        (_changed(hidden_act="swish"), "activation 'swish'"),
        (_changed(hidden_size=None), "hidden_size in config.json must be a whole number"),
        (_changed(num_attention_heads=5), "no multiple of its 5 heads"),
        (_without("visual_projection.weight"), "has no visual_projection.weight"),
        (_without("vision_model.embeddings.patch_embedding.weight"), "does not have the weights of an image model"),
    ],
)
def test_checkpoints_that_cannot_be_used_are_errors_at_planning(
    change: Callable[[Path], None], reason: str, tmp_path: Path, seed: int
) -> None:
    folder = tmp_path / "model"
    checkpoints.save("clip vision", folder, seed)
    change(folder)
    with pytest.raises(ModelError, match=reason):
        VisionSpec(Checkpoint(str(folder))).check()


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (_without("vision_model.encoder.layers.1.mlp.fc2.bias"), "lacks weights of its layers"),
        (_changed(intermediate_size=40), "do not fit its config.json"),
        (_changed(image_size=48), "16 positions, but its config.json means 36"),
    ],
)
def test_other_damage_is_an_error_when_a_worker_starts(
    change: Callable[[Path], None], reason: str, tmp_path: Path, seed: int
) -> None:
    checkpoints.save("clip vision", tmp_path, seed)
    change(tmp_path)
    with pytest.raises(ModelError, match=reason):
        load(VisionSpec(Checkpoint(str(tmp_path))))


def test_weights_that_are_no_numbers_are_an_error_when_a_worker_starts(tmp_path: Path, seed: int) -> None:
    from safetensors.torch import load_file, save_file

    checkpoints.save("clip vision", tmp_path, seed)
    tensors = load_file(tmp_path / "model.safetensors")
    tensors["vision_model.post_layernorm.weight"][3] = float("nan")
    save_file(tensors, tmp_path / "model.safetensors")
    with pytest.raises(ModelError, match="not finite"):
        load(VisionSpec(Checkpoint(str(tmp_path))))


def test_a_repository_that_cannot_be_reached_is_an_error_at_planning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import huggingface_hub.constants

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(ModelError, match="hf download some-owner/some-model"):
        VisionSpec(Checkpoint("some-owner/some-model", str(tmp_path))).check()
