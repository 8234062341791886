"""Tokens as transformers makes them, limits, and what was cut."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from tests.models import small

from gristmill.errors import ModelError
from gristmill.models.checkpoint import Checkpoint
from gristmill.models.tokenizer import (
    ReadLimits,
    TransformersTokenizer,
    check_vocabulary,
    load_tokenizer,
    token_limit,
)

ODD = [
    "",
    "   ",
    "\n",
    "[SEP] </s> <s>",
    "café naïve \u202e ｆｕｌｌ",
    "x" * 900,
    "\x00\x07",
    "日本語のテキスト",
    "a\u0301",
]


@pytest.mark.parametrize("kind", small.SPECIAL)
def test_tokens_are_those_of_transformers(kind: str, tmp_path: Path) -> None:
    from transformers import AutoTokenizer

    seed = random.randrange(2**31)
    print("seed", seed)
    small.tokenizer_of(kind, tmp_path)
    documents = [*small.texts(random.Random(seed), 60, longest=90), *ODD]
    longest = random.Random(seed).randint(3, 64)
    expected = AutoTokenizer.from_pretrained(str(tmp_path))(documents, truncation=True, max_length=longest)["input_ids"]

    tokens, _ = load_tokenizer(Checkpoint(str(tmp_path))).tokens(documents, ReadLimits(tokens=longest))

    assert tokens.to_arrow().to_pylist() == expected


def test_what_is_cut_is_counted(tmp_path: Path) -> None:
    small.tokenizer_of("wordpiece", tmp_path)
    tokenizer = load_tokenizer(Checkpoint(str(tmp_path)))
    documents = ["fox", "the quick brown fox", "the quick brown fox jumps", None]

    tokens, cut = tokenizer.tokens(documents, ReadLimits(chars=19, tokens=5))

    assert tokens.lengths.tolist() == [3, 5, 5, 2]
    assert (cut.documents, cut.chars, cut.tokens) == (2, len(" jumps"), 2)
    _, nothing = tokenizer.tokens(documents, ReadLimits())
    assert nothing.counters() == {}


def test_a_text_without_tokens_has_a_filler(tmp_path: Path) -> None:
    tokenizer = small.tokenizer_of("bytes", tmp_path)
    backend = tokenizer.backend_tokenizer
    backend.post_processor = __import__("tokenizers").processors.ByteLevel()
    backend.save(str(tmp_path / "tokenizer.json"))
    tokens, _ = load_tokenizer(Checkpoint(str(tmp_path))).tokens(["", None, "fox"], ReadLimits())
    assert tokens.to_arrow().to_pylist()[:2] == [[tokenizer.pad_token_id]] * 2


def test_a_checkpoint_without_tokenizer_json_is_read_by_transformers(tmp_path: Path) -> None:
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *sorted(set(small.WORDS)), "##s"]
    (tmp_path / "vocab.txt").write_text("\n".join(words))
    (tmp_path / "config.json").write_text('{"model_type": "bert", "max_position_embeddings": 64}')
    checkpoint = Checkpoint(str(tmp_path))
    checkpoint.check_tokenizer()

    tokenizer = load_tokenizer(checkpoint)
    tokens, _ = tokenizer.tokens(["the fox", ""], ReadLimits())

    assert isinstance(tokenizer, TransformersTokenizer)
    found = [words[token] for token in tokens.ids.tolist()]
    assert found == ["[CLS]", "the", "fox", "[SEP]", "[CLS]", "[SEP]"]
    assert token_limit(checkpoint, None) == 64


def test_more_tokens_than_the_model_takes_are_an_error(tmp_path: Path) -> None:
    small.save_classifier("roberta", tmp_path, 1)
    checkpoint = Checkpoint(str(tmp_path))
    assert token_limit(checkpoint, None) == 64
    assert token_limit(checkpoint, 65) == 65  # of 66 positions, padding takes one and the first
    with pytest.raises(ModelError, match="takes at most 65 tokens of a text, but max_seq_length is 66"):
        token_limit(checkpoint, 66)


def test_a_damaged_tokenizer_is_named(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(ModelError, match=r"tokenizer\.json is not a tokenizer\.json"):
        load_tokenizer(Checkpoint(str(tmp_path)))


@pytest.mark.parametrize("kind", small.SPECIAL)
def test_the_tokenizer_of_another_model_is_an_error_at_planning(kind: str, tmp_path: Path) -> None:
    known = len(small.tokenizer_of(kind, tmp_path))
    config = '{{"model_type": "bert", "hidden_size": 8, "vocab_size": {}}}'
    (tmp_path / "config.json").write_text(config.format(known))
    check_vocabulary(Checkpoint(str(tmp_path)))
    (tmp_path / "config.json").write_text(config.format(known - 1))
    with pytest.raises(ModelError, match=f"has {known} tokens, but the model knows {known - 1}"):
        check_vocabulary(Checkpoint(str(tmp_path)))
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(ModelError, match=r"not a tokenizer\.json"):
        check_vocabulary(Checkpoint(str(tmp_path)))
