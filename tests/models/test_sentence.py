"""Embedding models: each pooling, module and prompt as in sentence-transformers, and errors at planning."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.models import small
from tests.models.embedders import save_embedder

from gristmill.errors import ModelError
from gristmill.models.checkpoint import Checkpoint
from gristmill.models.chunks import ChunkTokenizer, chunks_of
from gristmill.models.engine import InferenceEngine
from gristmill.models.loading import ModelSpec, load
from gristmill.models.pooling import MODES
from gristmill.models.sentence import SentenceEmbedding, sentence_config
from gristmill.models.tokenizer import ReadLimits, load_tokenizer


@pytest.fixture
def seed() -> int:
    drawn = random.randrange(2**31)
    print("seed", drawn)
    return drawn


def embedded(folder: Path, documents: list[str], head: SentenceEmbedding | None = None) -> Any:
    """The embeddings, in batches of a random size."""
    checkpoint = Checkpoint(str(folder))
    config = sentence_config(checkpoint)
    spec = ModelSpec(checkpoint, head or SentenceEmbedding(), precision="float32")
    spec.check()
    limits = ReadLimits(tokens=config.limit(checkpoint, None))
    tokens, _ = load_tokenizer(checkpoint, config.lowercase).tokens(documents, limits)
    return InferenceEngine(load(spec), max_batch=random.randint(1, 9)).run(tokens)


def difference(found: Any, expected: Any) -> float:
    """The largest difference, relative to the largest number."""
    assert found.shape == expected.shape
    return float(np.abs(found - expected).max() / np.abs(expected).max())


@pytest.mark.parametrize("mode", MODES)
def test_each_pooling_is_that_of_sentence_transformers(mode: str, tmp_path: Path, seed: int) -> None:
    model = save_embedder(tmp_path, seed, pooling=mode)
    documents = [*small.texts(random.Random(seed), 30), "fox " * 90, "Café 日本"]
    assert difference(embedded(tmp_path, documents), model.encode(documents)) < 1e-5


def test_several_poolings_dense_layers_and_length_one(tmp_path: Path, seed: int) -> None:
    from sentence_transformers.base.modules import Dense, Normalize
    from torch import nn

    draw = random.Random(seed)
    modes = tuple(draw.sample(MODES, 3))
    activation = draw.choice([nn.Tanh(), nn.Identity(), nn.ReLU(), nn.GELU(), nn.SiLU()])
    print(modes, activation)
    model = save_embedder(
        tmp_path,
        seed,
        pooling=modes,
        after=[
            lambda: Dense(96, 40, activation_function=activation),
            lambda: Dense(40, 40, activation_function=activation, use_residual=True, bias=False),
            lambda: Dense(40, 24, activation_function=activation, use_residual=True),
            Normalize,
        ],
    )
    documents = small.texts(draw, 30)
    found = embedded(tmp_path, documents)
    assert difference(found, model.encode(documents)) < 1e-5
    assert np.abs(np.linalg.norm(found, axis=1) - 1).max() < 1e-5
    assert sentence_config(Checkpoint(str(tmp_path))).normalizes


@pytest.mark.parametrize("kind", ["roberta", "mpnet", "distilbert", "qwen2"])
def test_other_architectures_with_a_length_of_their_own(kind: str, tmp_path: Path, seed: int) -> None:
    model = save_embedder(
        tmp_path, seed, kind=kind, pooling="lasttoken" if kind == "qwen2" else "mean", max_seq_length=9
    )
    documents = small.texts(random.Random(seed), 30)
    checkpoint = Checkpoint(str(tmp_path))
    assert sentence_config(checkpoint).limit(checkpoint, None) == 9
    assert difference(embedded(tmp_path, documents), model.encode(documents)) < 1e-5


def test_the_format_of_older_versions_and_lower_case(tmp_path: Path, seed: int) -> None:
    from sentence_transformers import SentenceTransformer

    save_embedder(tmp_path, seed, kind="roberta")
    documents = [text.upper() for text in small.texts(random.Random(seed), 20)]
    (tmp_path / "1_Pooling/config.json").write_text(
        json.dumps({"word_embedding_dimension": 32, "pooling_mode_cls_token": True, "pooling_mode_max_tokens": True})
    )
    (tmp_path / "sentence_bert_config.json").unlink()
    (tmp_path / "sentence_roberta_config.json").write_text(json.dumps({"max_seq_length": 11, "do_lower_case": True}))
    _modules(tmp_path, "Transformer", "Pooling")
    expected = SentenceTransformer(str(tmp_path), device="cpu").encode(documents)

    assert expected.shape == (20, 64)
    assert difference(embedded(tmp_path, documents), expected) < 1e-5
    (tmp_path / "sentence_roberta_config.json").write_text(json.dumps({"max_seq_length": 11}))
    assert difference(embedded(tmp_path, documents), expected) > 1e-3


def test_without_its_own_modules_the_mean_is_scaled_to_length_one(tmp_path: Path, seed: int) -> None:
    model = save_embedder(tmp_path, seed, pooling="max")
    documents = small.texts(random.Random(seed), 20)
    model[1].pooling_mode = "mean"
    expected = model.encode(documents, normalize_embeddings=True)
    found = embedded(tmp_path, documents, SentenceEmbedding(own_modules=False))
    assert difference(found, expected) < 1e-5
    model[1].pooling_mode = "cls"
    assert difference(embedded(tmp_path, documents, SentenceEmbedding("cls")), model.encode(documents)) < 1e-5


def test_prompts(tmp_path: Path, seed: int) -> None:
    prompts = {"query": "the quick ", "passage": "rivers "}
    save_embedder(tmp_path, seed, prompts=prompts, default_prompt_name="passage")
    checkpoint = Checkpoint(str(tmp_path))
    config = sentence_config(checkpoint)

    assert config.prompt(checkpoint, None, None) == "rivers "
    assert config.prompt(checkpoint, None, "query") == "the quick "
    assert config.prompt(checkpoint, "fox ", None) == "fox "
    assert config.prompt(checkpoint, "", None) == ""
    with pytest.raises(ModelError, match=r"no prompt 'topic'\. Its prompts: .*'passage'"):
        config.prompt(checkpoint, None, "topic")


def test_a_prompt_that_is_not_pooled_is_an_error(tmp_path: Path, seed: int) -> None:
    save_embedder(tmp_path, seed, include_prompt=False)
    checkpoint = Checkpoint(str(tmp_path))
    config = sentence_config(checkpoint)
    assert config.prompt(checkpoint, None, None) == ""
    with pytest.raises(ModelError, match="does not pool the tokens of a prompt"):
        config.prompt(checkpoint, "query: ", None)


def _edit(folder: Path, name: str, **changes: Any) -> None:
    found = json.loads((folder / name).read_text()) if (folder / name).exists() else {}
    (folder / name).write_text(json.dumps({**found, **changes}))


def _modules(folder: Path, *kinds: str) -> None:
    paths = ["", *(f"{n}_{kind.rpartition('.')[2]}" for n, kind in enumerate(kinds[1:], 1))]
    types = [kind if "." in kind else f"sentence_transformers.models.{kind}" for kind in kinds]
    (folder / "modules.json").write_text(
        json.dumps(
            [
                {"idx": n, "name": str(n), "path": path, "type": kind}
                for n, (path, kind) in enumerate(zip(paths, types, strict=True))
            ]
        )
    )


BROKEN = {
    "unknown module": (lambda f: _modules(f, "Transformer", "Pooling", "LSTM"), "module 'sentence_transformers.*LSTM'"),
    "code of the model": (lambda f: _modules(f, "custom_st.Transformer", "Pooling"), "module 'custom_st.Transformer'"),
    "another order": (lambda f: _modules(f, "Transformer", "Dense", "Pooling"), "has the modules Transformer, Dense"),
    "not a list": (lambda f: (f / "modules.json").write_text("{}"), "must hold a list"),
    "damaged": (lambda f: (f / "modules.json").write_text("[{"), "modules.json is damaged"),
    "pooling mode": (lambda f: _edit(f, "1_Pooling/config.json", pooling_mode="median"), "pooling mode"),
    "no pooling": (lambda f: (f / "1_Pooling/config.json").unlink(), "no 1_Pooling/config.json"),
    "activation": (lambda f: _edit(f, "2_Dense/config.json", activation_function="os.system"), "'os.system'"),
    "size": (lambda f: _edit(f, "2_Dense/config.json", in_features=7), "takes 7 numbers, but gets 32"),
    "no size": (lambda f: (f / "2_Dense/config.json").write_text("{}"), "does not give in_features"),
    "another field": (
        lambda f: _edit(f, "2_Dense/config.json", module_input_name="token_embeddings"),
        "has module_input_name 'token_embeddings'",
    ),
    "pickle": (
        lambda f: (f / "2_Dense/model.safetensors").rename(f / "2_Dense/pytorch_model.bin"),
        "'2_Dense' has no model.safetensors; pickles are not read",
    ),
    "weights": (lambda f: _edit(f, "2_Dense/config.json", use_residual=True, out_features=16), "lacks residual.weight"),
    "task": (lambda f: _edit(f, "sentence_bert_config.json", transformer_task="fill-mask"), "made for 'fill-mask'"),
    "folder": (
        lambda f: (f / "modules.json").write_text(
            json.dumps(
                [
                    {"path": "0_Transformer", "type": "sentence_transformers.models.Transformer"},
                    {"path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
                ]
            )
        ),
        "has its layers in the folder '0_Transformer'",
    ),
}


@pytest.fixture(scope="module")
def complete(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from sentence_transformers.base.modules import Dense

    folder = tmp_path_factory.mktemp("complete")
    save_embedder(folder, 1, after=[lambda: Dense(32, 16)])
    return folder


@pytest.mark.parametrize("name", BROKEN)
def test_what_cannot_be_used_is_an_error_at_planning(name: str, complete: Path, tmp_path: Path) -> None:
    import shutil

    folder = tmp_path / "model"
    shutil.copytree(complete, folder)
    spec = ModelSpec(Checkpoint(str(folder)), SentenceEmbedding())
    spec.check()
    break_it, message = BROKEN[name]
    break_it(folder)

    with pytest.raises(ModelError, match=message):
        spec.check()


def test_chunks_hold_all_tokens_of_a_text(tmp_path: Path, seed: int) -> None:
    draw = random.Random(seed)
    small.tokenizer_of("wordpiece", tmp_path)
    tokenizer = load_tokenizer(Checkpoint(str(tmp_path)))
    prompt = draw.choice(["", "the quick ", "q"])
    limit = draw.randint(8, 20)
    documents = [*small.texts(draw, 30, longest=90), "", "x" * 300]

    chunked = ChunkTokenizer(tokenizer, prompt, ReadLimits(tokens=limit), in_chunks=True)
    tokens, cut = chunked.tokens(documents)
    chunks, texts = chunks_of(tokens, limit)

    assert cut.counters() == {}
    assert texts.tolist() == sorted(texts.tolist())
    assert set(texts.tolist()) == set(range(len(documents)))
    start, end = list(tokenizer.prefix), list(tokenizer.suffix)
    (before,) = tokenizer.encode([prompt])
    for number, text in enumerate(documents):
        (whole,) = tokenizer.encode([prompt + text])
        parts = [chunks.take([n]).ids.tolist() for n in np.flatnonzero(texts == number)]
        assert all(len(part) == limit for part in parts[:-1])
        inner = [part[len(start) : len(part) - len(end)] for part in parts]
        assert all(part[: len(start)] == start and part[len(part) - len(end) :] == end for part in parts)
        shared = next((n for n, pair in enumerate(zip(whole, before, strict=False)) if pair[0] != pair[1]), len(before))
        assert all(part[:shared] == whole[:shared] for part in inner)
        assert whole[:shared] + [token for part in inner for token in part[shared:]] == whole


def test_a_text_after_a_prompt_is_cut_as_in_sentence_transformers(tmp_path: Path, seed: int) -> None:
    from transformers import AutoTokenizer

    draw = random.Random(seed)
    small.tokenizer_of("wordpiece", tmp_path)
    tokenizer = load_tokenizer(Checkpoint(str(tmp_path)))
    documents = small.texts(draw, 30)
    expected = AutoTokenizer.from_pretrained(str(tmp_path))(
        [f"the quick {text}" for text in documents], truncation=True, max_length=12
    )["input_ids"]
    chunked = ChunkTokenizer(tokenizer, "the quick ", ReadLimits(tokens=12), in_chunks=False)
    tokens, cut = chunked.tokens(documents)
    assert tokens.to_arrow().to_pylist() == expected
    whole, _ = tokenizer.tokens([f"the quick {text}" for text in documents], ReadLimits())
    assert cut.tokens == int(whole.lengths.sum() - tokens.lengths.sum())
    assert cut.documents == int((whole.lengths > 12).sum())
    with pytest.raises(ModelError, match="use a shorter prompt"):
        ChunkTokenizer(tokenizer, "the quick ", ReadLimits(tokens=4), in_chunks=False)
