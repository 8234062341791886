"""Cosmos-Embed1: the network against BLIP-2's parts in transformers, and checkpoints that cannot be used."""

from __future__ import annotations

import json
import random
from pathlib import Path

import numpy as np
import pytest
from tests.models.video import checkpoints

from gristmill.errors import ModelError
from gristmill.models.checkpoint import Checkpoint
from gristmill.models.video.cosmos_embed1 import CosmosEmbed1Spec, checkpoint_of
from gristmill.models.vision.rows import Items, RowEngine


@pytest.fixture
def seed() -> int:
    drawn = random.randrange(2**31)
    print("seed", drawn)
    return drawn


@pytest.mark.parametrize("qformer", ["qformer", "Qformer"])
def test_embeddings_are_those_of_the_parts_of_blip2(tmp_path: Path, seed: int, qformer: str) -> None:
    parts = checkpoints.save_cosmos(tmp_path, seed, qformer)
    clips = checkpoints.clips_of(seed, 3, 8, 28)
    expected = checkpoints.cosmos_reference(parts, clips)

    spec = CosmosEmbed1Spec(Checkpoint(str(tmp_path)))
    spec.check()
    found = RowEngine(spec.load(), 2, "clip").run(Items([clips]))

    assert spec.item == (8, 28, 28, 3)
    assert np.abs(found - expected).max() < 2e-5
    assert np.abs(found[0] - found[1]).max() > 1e-3


def test_the_order_of_frames_counts(tmp_path: Path, seed: int) -> None:
    checkpoints.save_cosmos(tmp_path, seed)
    clips = checkpoints.clips_of(seed, 1, 8, 28)
    engine = RowEngine(CosmosEmbed1Spec(Checkpoint(str(tmp_path))).load(), 2, "clip")
    there, back = engine.run(Items([clips, np.ascontiguousarray(clips[:, ::-1])]))
    assert np.abs(there - back).max() > 1e-4


def test_another_encoding_of_time_names_the_way_out(tmp_path: Path, seed: int) -> None:
    checkpoints.save_cosmos(tmp_path, seed, temporal_encoding_type="neighboring_token_propagation")
    with pytest.raises(ModelError, match="set trust_remote_code=True"):
        CosmosEmbed1Spec(Checkpoint(str(tmp_path))).check()


def test_unknown_names_of_weights_are_found_at_planning(tmp_path: Path, seed: int) -> None:
    from safetensors.torch import load_file, save_file

    checkpoints.save_cosmos(tmp_path, seed)
    state = load_file(tmp_path / "model.safetensors")
    state["time_embedding"] = state.pop("temporal_encoding")
    save_file(state, tmp_path / "model.safetensors")
    with pytest.raises(ModelError, match="temporal_encoding is not among them"):
        CosmosEmbed1Spec(Checkpoint(str(tmp_path))).check()


def test_weights_of_another_resolution_are_refused(tmp_path: Path, seed: int) -> None:
    checkpoints.save_cosmos(tmp_path, seed, resolution=56)
    with pytest.raises(ModelError, match="28 x 28 pixels"):
        CosmosEmbed1Spec(Checkpoint(str(tmp_path))).check()


def test_a_checkpoint_of_another_model_is_refused(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "clip"}', encoding="utf-8")
    with pytest.raises(ModelError, match="not 'cosmos-embed1'"):
        CosmosEmbed1Spec(Checkpoint(str(tmp_path))).check()


CODE = """
import torch
from transformers import PretrainedConfig, PreTrainedModel, ProcessorMixin
from types import SimpleNamespace


class Config(PretrainedConfig):
    model_type = "cosmos-embed1"


class Model(PreTrainedModel):
    config_class = Config

    def __init__(self, config):
        super().__init__(config)
        self.proj = torch.nn.Linear(3, config.embed_dim)
        self.post_init()

    def get_video_embeddings(self, videos):
        return SimpleNamespace(visual_proj=torch.nn.functional.normalize(self.proj(videos.mean((1, 3, 4))), dim=1))


class Processor(ProcessorMixin):
    attributes = []

    def __call__(self, videos, return_tensors):
        return {"videos": torch.from_numpy(videos).float() / 255}
"""


def test_the_code_in_a_checkpoint_runs_only_if_it_is_trusted(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch
    from safetensors.torch import save_file

    monkeypatch.setenv("HF_MODULES_CACHE", str(tmp_path / "modules"))
    folder = tmp_path / "model"
    folder.mkdir()
    weight, bias = torch.randn(4, 3), torch.randn(4)
    save_file({"proj.weight": weight, "proj.bias": bias}, folder / "model.safetensors", {"format": "pt"})
    (folder / "code_of_model.py").write_text(CODE, encoding="utf-8")
    auto = {"AutoConfig": "code_of_model.Config", "AutoModel": "code_of_model.Model"}
    auto["AutoProcessor"] = "code_of_model.Processor"
    config = {"model_type": "cosmos-embed1", "resolution": 16, "embed_dim": 4, "auto_map": auto}
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    (folder / "processor_config.json").write_text(
        json.dumps({"processor_class": "Processor", "auto_map": {"AutoProcessor": auto["AutoProcessor"]}}),
        encoding="utf-8",
    )
    clips = checkpoints.clips_of(seed, 2, 8, 16)

    with pytest.raises(ModelError, match="trust_remote_code=True"):
        CosmosEmbed1Spec(Checkpoint(str(folder))).check()
    spec = CosmosEmbed1Spec(Checkpoint(str(folder)), trust_remote_code=True)
    spec.check()
    found = RowEngine(spec.load(), 2, "clip").run(Items([clips]))

    means = torch.from_numpy(clips).float().mean((1, 2, 3)) / 255
    expected = torch.nn.functional.normalize(means @ weight.T + bias, dim=1).numpy()
    assert np.abs(found - expected).max() < 1e-5


def test_a_variant_names_its_checkpoint(tmp_path: Path) -> None:
    assert checkpoint_of("336p", None, None) == "nvidia/Cosmos-Embed1-336p"
    assert checkpoint_of("224p", None, str(tmp_path)) == str(tmp_path)
    inside = tmp_path / "nvidia" / "Cosmos-Embed1-224p"
    inside.mkdir(parents=True)
    assert checkpoint_of("224p", None, str(tmp_path)) == str(inside)
    with pytest.raises(ValueError, match="variant must be one of"):
        checkpoint_of("1080p", None, None)
    with pytest.raises(ValueError, match="exclude each other"):
        checkpoint_of("224p", "a", "b")
