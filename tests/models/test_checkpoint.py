"""Where checkpoints are found, and the errors for those that cannot be used."""

from __future__ import annotations

import json
import struct
import sys
from pathlib import Path

import pytest
from tests.models import small

from gristmill.errors import ModelError, PlanError
from gristmill.models.architectures import BASE_MODELS, most_tokens
from gristmill.models.checkpoint import Checkpoint
from gristmill.models.loading import ModelSpec, load


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bert")
    small.save_classifier("bert", folder, 1)
    return folder


@pytest.fixture
def copy(saved: Path, tmp_path: Path) -> Path:
    for path in saved.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    return tmp_path


def in_cache(folder: Path, cache: Path, repository: str = "someone/model") -> None:
    """Put the files of a folder into a cache, as huggingface_hub does."""
    place = cache / f"models--{repository.replace('/', '--')}"
    snapshot = place / "snapshots" / ("0" * 40)
    snapshot.mkdir(parents=True)
    (place / "refs").mkdir()
    (place / "refs" / "main").write_text("0" * 40)
    for path in folder.iterdir():
        (snapshot / path.name).write_bytes(path.read_bytes())


def problem(checkpoint: Checkpoint) -> str:
    with pytest.raises(ModelError) as caught:
        ModelSpec(checkpoint).check()
        checkpoint.check_tokenizer()
    assert isinstance(caught.value, PlanError)
    return str(caught.value)


def test_a_folder_a_package_and_a_cached_repository_are_found(
    copy: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = tmp_path_factory.mktemp("cache")
    in_cache(copy, cache)
    modules = tmp_path_factory.mktemp("modules")
    (modules / "weights_of_mine").mkdir()
    (modules / "weights_of_mine" / "__init__.py").write_text("raise RuntimeError('imported')")
    copy.rename(modules / "weights_of_mine" / "model")
    monkeypatch.syspath_prepend(str(modules))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)

    for checkpoint in (
        Checkpoint(str(modules / "weights_of_mine" / "model")),
        Checkpoint("package:weights_of_mine/model"),
        Checkpoint("someone/model", cache_dir=str(cache)),
        Checkpoint(f"someone/model@{'0' * 40}", cache_dir=str(cache)),
    ):
        ModelSpec(checkpoint).check()
        checkpoint.check_tokenizer()
        assert (checkpoint.fetch() / "model.safetensors").is_file()
        assert checkpoint.labels == ["bad", "fair", "good"]
    assert "weights_of_mine" not in sys.modules


def test_a_repository_that_was_not_fetched_says_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    said = problem(Checkpoint("someone/else", cache_dir=str(tmp_path)))
    assert "not in the cache" in said
    assert f"hf download someone/else --cache-dir {tmp_path}" in said


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("./nothing", "there is no folder 'nothing'"),
        ("nothing", "there is no folder 'nothing'"),
        ("package:no_such_package/model", "pip install no-such-package"),
        ("package:pytest/model", "has no folder 'model'"),
    ],
)
def test_a_model_that_is_not_there_is_an_error(name: str, words: str) -> None:
    assert words in problem(Checkpoint(name))


def test_files_that_are_missing_are_named(copy: Path) -> None:
    checkpoint = Checkpoint(str(copy))
    (copy / "tokenizer.json").unlink()
    assert "has no tokenizer" in problem(checkpoint)
    (copy / "model.safetensors").rename(copy / "pytorch_model.bin")
    assert "only as a pickle, pytorch_model.bin" in problem(checkpoint)
    (copy / "pytorch_model.bin").unlink()
    assert "has no weights" in problem(checkpoint)
    (copy / "config.json").unlink()
    assert "has no config.json" in problem(Checkpoint(str(copy)))


def test_damaged_files_are_named(copy: Path) -> None:
    whole = (copy / "model.safetensors").read_bytes()
    for damaged in (whole[:-5], b"", whole[:4], b"\xff" * 64, b"\x05" + b"\0" * 7 + b"12345"):
        (copy / "model.safetensors").write_bytes(damaged)
        assert "model.safetensors is damaged or cut" in problem(Checkpoint(str(copy)))
    (copy / "model.safetensors").write_bytes(whole)
    (copy / "config.json").write_text("{")
    assert "config.json is damaged" in problem(Checkpoint(str(copy)))


def test_another_architecture_is_an_error(copy: Path) -> None:
    config = json.loads((copy / "config.json").read_text())
    (copy / "config.json").write_text(json.dumps(config | {"model_type": "berd"}))
    said = problem(Checkpoint(str(copy)))
    assert "'berd', which is not supported. Is it a 'bert'?" in said
    assert "deberta-v2" in said


def test_a_model_without_a_head_or_with_missing_layers_is_an_error(copy: Path) -> None:
    from safetensors.torch import load_file, save_file

    weights = load_file(copy / "model.safetensors")
    save_file({name: one for name, one in weights.items() if "classifier" not in name}, copy / "model.safetensors")
    assert "there is no weight classifier.weight" in problem(Checkpoint(str(copy)))
    save_file({name: one for name, one in weights.items() if "layer.1." not in name}, copy / "model.safetensors")
    with pytest.raises(ModelError, match=r"lacks weights of its layers, encoder\.layer\.1\."):
        load(ModelSpec(Checkpoint(str(copy))))


def changed_config(copy: Path, **changes: object) -> None:
    config = json.loads((copy / "config.json").read_text())
    (copy / "config.json").write_text(json.dumps(config | changes))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"num_hidden_layers": 9}, "num_hidden_layers is 9 instead of 2"),
        ({"hidden_size": 64}, "hidden_size is 64 instead of 32"),
        ({"hidden_size": "wide"}, "hidden_size in config.json must be a whole number, not 'wide'"),
        ({"vocab_size": 100}, "vocab_size is 100 instead of"),
        ({"model_type": "roberta"}, "does not have the weights of a 'roberta' model"),
        ({"model_type": "llama"}, "does not have the weights of a 'llama' model"),
        ({"id2label": {"0": "a", "1": "b"}}, "has 2 labels in config.json, but makes 3 numbers"),
    ],
)
def test_weights_of_another_configuration_are_an_error_at_planning(
    copy: Path, changes: dict[str, object], words: str
) -> None:
    changed_config(copy, **changes)
    with pytest.raises(ModelError, match=words):
        ModelSpec(Checkpoint(str(copy))).check()


def test_a_header_that_does_not_fit_its_bytes_and_quantized_weights_are_named(copy: Path) -> None:
    import torch
    from safetensors.torch import load_file, save_file

    weights = load_file(copy / "model.safetensors")
    whole = (copy / "model.safetensors").read_bytes()
    (length,) = struct.unpack("<Q", whole[:8])
    header = json.loads(whole[8 : 8 + length])
    header["classifier.weight"]["shape"] = [1, 1]
    wrong = json.dumps(header).encode()
    (copy / "model.safetensors").write_bytes(struct.pack("<Q", len(wrong)) + wrong + whole[8 + length :])
    assert "classifier.weight has" in problem(Checkpoint(str(copy)))
    save_file({name: (one * 50).to(torch.int8) for name, one in weights.items()}, copy / "model.safetensors")
    assert "is quantized" in problem(Checkpoint(str(copy)))


@pytest.mark.parametrize("kind", ["bert", "deberta-v2"])
def test_weights_that_cannot_work_are_named_when_they_are_loaded(kind: str, tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    small.save_classifier(kind, tmp_path, 1)
    path, checkpoint = tmp_path / "model.safetensors", Checkpoint(str(tmp_path))
    weights = load_file(path)
    name = next(name for name in sorted(weights) if "layer.1." in name and name.endswith("dense.weight"))
    save_file(weights | {name: weights[name][:5].contiguous()}, path)
    with pytest.raises(ModelError, match=r"config\.json"):
        load(ModelSpec(checkpoint))
    save_file(weights | {name: weights[name] * float("nan")}, path)
    with pytest.raises(ModelError, match="not finite: its weights are damaged"):
        load(ModelSpec(checkpoint))
    save_file(weights, path)
    load(ModelSpec(checkpoint))
    changed_config(tmp_path, num_attention_heads=5)
    with pytest.raises(ModelError, match=r"config\.json"):
        load(ModelSpec(Checkpoint(str(tmp_path))))


def test_code_beside_a_checkpoint_is_never_run(tmp_path: Path) -> None:
    for kind in ("bert", "deberta-v2"):
        folder = tmp_path / kind
        small.save_classifier(kind, folder, 1)
        (folder / "code.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\nclass Model: pass\n")
        names = ("AutoConfig", "AutoModel", "AutoModelForSequenceClassification", "AutoTokenizer")
        changed_config(folder, auto_map=dict.fromkeys(names, "code.Model"))
        spec = ModelSpec(Checkpoint(str(folder)))
        spec.check()
        load(spec)
    assert not (tmp_path / "ran").exists()


def test_weights_in_shards_are_the_same_weights(copy: Path, saved: Path) -> None:
    from safetensors.torch import load_file, save_file

    weights = load_file(copy / "model.safetensors")
    (copy / "model.safetensors").unlink()
    halves = [sorted(weights)[::2], sorted(weights)[1::2]]
    for number, names in enumerate(halves):
        save_file({name: weights[name] for name in names}, copy / f"model-{number}.safetensors")
    placed = {name: f"model-{number}.safetensors" for number, names in enumerate(halves) for name in names}
    (copy / "model.safetensors.index.json").write_text(json.dumps({"weight_map": placed}))
    checkpoint = Checkpoint(str(copy))
    ModelSpec(checkpoint).check()

    found = checkpoint.weights()

    assert found.names == set(weights)
    assert all((found[name] == weights[name]).all() for name in weights)
    (copy / "model-1.safetensors").unlink()
    assert "model-1.safetensors is missing" in problem(checkpoint)


def test_a_pth_file_is_read_only_if_it_holds_tensors(copy: Path) -> None:
    import torch
    from safetensors.torch import load_file

    weights = load_file(copy / "model.safetensors")
    (copy / "model.safetensors").unlink()
    torch.save(weights, copy / "weights.pth")
    found = Checkpoint(str(copy)).weights()
    assert all((found[name] == weights[name]).all() for name in weights)
    torch.save({"a": Path("x")}, copy / "weights.pth")
    assert "not a file of plain tensors" in problem(Checkpoint(str(copy)))


def test_old_names_of_weights_are_known(copy: Path) -> None:
    from safetensors.torch import load_file, save_file

    weights = load_file(copy / "model.safetensors")
    old = {
        name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): one
        for name, one in weights.items()
    }
    assert old.keys() != weights.keys()
    save_file(old, copy / "model.safetensors")
    assert Checkpoint(str(copy)).weights().names == weights.keys()


def test_a_base_model_that_is_only_named_is_known(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"base_model": "microsoft/DeBERTa-v3-base"}))
    checkpoint = Checkpoint(str(tmp_path))
    assert checkpoint.trunk_config == BASE_MODELS["microsoft/deberta-v3-base"]
    assert checkpoint.architecture.prefix == "deberta."
    assert most_tokens(checkpoint.trunk_config) is None


def test_a_token_is_in_no_message() -> None:
    checkpoint = Checkpoint("./nothing", token="hf_secret")
    assert "hf_secret" not in repr(checkpoint) + problem(checkpoint)
