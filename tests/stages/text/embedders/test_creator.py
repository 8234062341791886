"""Embeddings of all-MiniLM-L6-v2 with its real weights, as sentence-transformers computes them."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.models import small
from tests.models.embedders import save_embedder
from tests.stages.text.classifiers.running import classified

from gristmill import LocalExecutor, Pipeline
from gristmill.errors import ModelError
from gristmill.models.checkpoint import Checkpoint
from gristmill.stages.text.embedders.base import DEFAULT_MODEL
from gristmill.text import EmbeddingCreatorStage, JsonlReader, JsonlWriter, ParquetWriter

SAMPLES = [
    "",
    "fox",
    " \n\t ",
    "The quick brown fox jumps over the lazy dog.",
    "the of and " * 200,
    "Il était une fois, dans un pays lointain, une reine qui aimait les châtaignes.",
    "今日は天気がいいので、公園まで散歩に行きました。",
    "В начале июля, в чрезвычайно жаркое время, под вечер, один молодой человек вышел",
    "كان يا ما كان في قديم الزمان",
    "👩‍👩‍👧‍👦 🎉🎉 so happy!!! 😀",
    "x" * 900,
    "[SEP] [CLS] [PAD] <s> \x00\x07 \u202e",
    "def main():\n    return {'a': [1, 2, 3]}\n",
    "www.example.org/path?query=1&b=2#top",
]


@pytest.fixture(scope="module")
def seed() -> int:
    drawn = random.randrange(2**31)
    print("seed", drawn)
    return drawn


@pytest.fixture(scope="module")
def reference() -> Any:
    from sentence_transformers import SentenceTransformer

    return SentenceTransformer(str(Checkpoint(DEFAULT_MODEL).folder()), device="cpu")


@pytest.fixture(scope="module")
def documents(seed: int) -> list[str]:
    """The samples, and texts joined of them at random, the longest beyond what the model reads."""
    draw = random.Random(seed)
    made = [" ".join(draw.choices(SAMPLES[1:], k=draw.randint(1, 6)))[: draw.randint(1, 1200)] for _ in range(10)]
    return SAMPLES + made


def embeddings(stage: EmbeddingCreatorStage, texts: list[str | None]) -> Any:
    return np.stack(
        classified(stage, texts).data[stage.embedding_field].combine_chunks().to_numpy(zero_copy_only=False)
    )


def cosines(a: Any, b: Any) -> Any:
    a, b = a.astype(np.float64), b.astype(np.float64)
    return (a * b).sum(axis=1) / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1)


def test_embeddings_of_mini_lm_are_those_of_sentence_transformers(documents: list[str], reference: Any) -> None:
    expected = reference.encode(documents)

    found = classified(EmbeddingCreatorStage(autocast=False), list(documents))
    default = embeddings(EmbeddingCreatorStage(), list(documents))

    column = found.data["embeddings"].combine_chunks()
    assert column.type == pa.list_(pa.float32(), 384)
    values = np.array(column.to_pylist())
    assert np.abs(values - expected).max() < 1e-5
    assert cosines(values, expected).min() > 0.99999
    assert cosines(default, expected).min() >= 0.999
    assert found.data["text"].to_pylist() == documents
    assert found.columns == ["text", "embeddings"]
    lengths = [len(ids) for ids in reference.tokenizer(documents)["input_ids"]]
    assert found.account.counters["documents cut for the model"] == sum(length > 256 for length in lengths)


def test_a_missing_text_has_no_embedding_and_an_empty_batch_stays_empty(reference: Any) -> None:
    found = classified(EmbeddingCreatorStage(), [None, "fox", ""]).data["embeddings"].to_pylist()
    assert found[0] is None
    assert np.abs(np.array(found[1:]) - reference.encode(["fox", ""])).max() < 1e-5
    for way in ("truncate", "average"):
        nothing = classified(EmbeddingCreatorStage(long_documents=way), [])
        assert nothing.data["embeddings"].type == pa.list_(pa.float32(), 384)
        assert nothing.num_items == 0


def test_half_precision_limits_and_prompts(documents: list[str], reference: Any, seed: int) -> None:
    draw = random.Random(seed)
    chars, tokens = draw.randint(1, 600), draw.randint(6, 512)
    stage = EmbeddingCreatorStage(
        dtype="float16", max_chars=chars, max_seq_length=tokens, prompt="passage: ", embedding_field="vector"
    )
    reference.max_seq_length, before = tokens, reference.max_seq_length
    try:
        expected = reference.encode([text[:chars] for text in documents], prompt="passage: ")
    finally:
        reference.max_seq_length = before

    found = classified(stage, list(documents)).data["vector"].combine_chunks()

    assert found.type == pa.list_(pa.float16(), 384)
    values = np.array(found.cast(pa.list_(pa.float32(), 384)).to_pylist())
    assert np.abs(values - expected).max() < 3e-4
    assert cosines(values, expected).min() >= 0.999


def test_long_documents_are_averaged_over_chunks(documents: list[str], reference: Any) -> None:
    import torch

    limit = 60
    stage = EmbeddingCreatorStage(long_documents="average", max_seq_length=limit, model_inference_batch_size=3)
    expected = []
    for text in documents:
        ids = reference.tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]
        pieces = [ids[at : at + limit - 2] for at in range(0, max(1, len(ids)), limit - 2)]
        with torch.inference_mode():
            rows = []
            for piece in pieces:
                whole = torch.tensor([[101, *piece, 102]])
                rows.append(reference({"input_ids": whole, "attention_mask": torch.ones_like(whole)}))
        vectors = np.stack([row["sentence_embedding"][0].numpy() for row in rows])
        mean = np.average(vectors, axis=0, weights=[len(piece) + 2 for piece in pieces])
        expected.append(mean / np.linalg.norm(mean))

    found = classified(stage, list(documents))

    assert np.abs(np.array(found.data["embeddings"].to_pylist()) - np.array(expected)).max() < 1e-5
    assert "documents cut for the model" not in found.account.counters


def test_averages_of_a_model_that_does_not_normalize(tmp_path: Path, seed: int) -> None:
    model = save_embedder(tmp_path, seed)
    text = " ".join(random.Random(seed).choices(small.WORDS, k=40))
    ids = model.tokenizer(text, add_special_tokens=False)["input_ids"]
    half = len(ids) // 2 + 1
    stage = EmbeddingCreatorStage(model_identifier=str(tmp_path), long_documents="average", max_seq_length=half + 2)
    pieces = [model.tokenizer.decode(ids[:half]), model.tokenizer.decode(ids[half:])]
    assert [len(model.tokenizer(piece)["input_ids"]) - 2 for piece in pieces] == [half, len(ids) - half]
    expected = np.average(model.encode(pieces), axis=0, weights=[half + 2, len(ids) - half + 2])

    found = embeddings(stage, [text])

    assert np.abs(found[0] - expected).max() < 1e-5 * np.abs(expected).max()
    assert abs(np.linalg.norm(found) - 1) > 1e-3


@pytest.mark.parametrize("pooling", ["mean_pooling", "cls", "last_token"])
def test_pooling_without_the_models_own_modules(pooling: str, documents: list[str], reference: Any) -> None:
    modes = {"mean_pooling": "mean", "cls": "cls", "last_token": "lasttoken"}
    stage = EmbeddingCreatorStage(use_sentence_transformer=False, embedding_pooling=pooling, max_seq_length=256)
    reference[1].pooling_mode = modes[pooling]
    try:
        expected = reference.encode(documents)
    finally:
        reference[1].pooling_mode = "mean"
    assert np.abs(embeddings(stage, list(documents)) - expected).max() < 1e-5
    own = EmbeddingCreatorStage(embedding_pooling=pooling)
    assert np.abs(embeddings(own, list(documents)) - expected).max() < 1e-5


def test_prompts_by_name(tmp_path: Path, seed: int) -> None:
    model = save_embedder(tmp_path, seed, prompts={"a": "the quick ", "b": "rivers "}, default_prompt_name="b")
    texts = small.texts(random.Random(seed), 12)
    name = str(tmp_path)
    for given, options in (({}, {}), ({"prompt_name": "a"},) * 2, ({"prompt": "fox "},) * 2, ({"prompt": ""},) * 2):
        expected = model.encode(texts, **options)
        found = embeddings(EmbeddingCreatorStage(model_identifier=name, **given), list(texts))
        assert np.abs(found - expected).max() < 1e-5 * np.abs(expected).max(), given
    with pytest.raises(ModelError, match="no prompt 'c'"):
        Pipeline("p", stages=[EmbeddingCreatorStage(model_identifier=name, prompt_name="c")]).plan()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"embedding_pooling": "median"}, "embedding_pooling must be one of 'mean_pooling', 'cls', 'last_token'"),
        ({"dtype": "int8"}, "dtype must be one of"),
        ({"long_documents": "drop"}, "long_documents must be one of"),
        ({"prompt": "a", "prompt_name": "b"}, "prompt or prompt_name, not both"),
        ({"prompt_name": "b", "use_sentence_transformer": False}, "does not read. Use prompt"),
    ],
)
def test_wrong_arguments(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        EmbeddingCreatorStage(**arguments)


def test_a_model_that_cannot_be_used_is_an_error_at_planning(tmp_path: Path) -> None:
    def planned(**arguments: Any) -> Any:
        reader = JsonlReader(str(tmp_path / "a.jsonl"))
        return Pipeline("p", stages=[reader, EmbeddingCreatorStage(**arguments)]).plan()

    (tmp_path / "a.jsonl").write_text('{"text": "fox"}\n')
    planned()
    with pytest.raises(ModelError, match="pip install gt-all-big"):
        planned(model_identifier="package:gt_all_big/model")
    with pytest.raises(ModelError, match="takes at most 512 tokens"):
        planned(max_seq_length=513)


def run(folder: Path, out: Path, writer: Any, workers: int) -> Any:
    stage = EmbeddingCreatorStage(dtype="float16", max_seq_length=32)
    stage = stage.with_({"EmbeddingCreatorStage model": {"num_workers": workers}})
    pipeline = Pipeline("p", stages=[JsonlReader(str(folder)), stage, writer(str(out))])
    return pipeline.run(LocalExecutor(config={"num_cpus": 5, "num_gpus": 0, "view": "off"}))


def test_a_pipeline_writes_the_same_bytes_for_one_and_four_workers(
    documents: list[str], reference: Any, tmp_path: Path
) -> None:
    (tmp_path / "in").mkdir()
    for number in range(4):
        lines = [json.dumps({"text": text, "n": n}) for n, text in enumerate(documents) if n % 4 == number]
        (tmp_path / "in" / f"{number}.jsonl").write_text("\n".join(lines) + "\n")
    reference.max_seq_length, before = 32, reference.max_seq_length
    try:
        expected = reference.encode(documents)
    finally:
        reference.max_seq_length = before

    result = run(tmp_path / "in", tmp_path / "one", JsonlWriter, 1)
    run(tmp_path / "in", tmp_path / "four", JsonlWriter, 4)
    run(tmp_path / "in", tmp_path / "parquet", ParquetWriter, 2)

    one, four = ({p.name: p.read_bytes() for p in (tmp_path / name).glob("*.jsonl")} for name in ("one", "four"))
    assert one == four
    rows = [json.loads(line) for content in one.values() for line in content.splitlines()]
    assert {row["n"]: row["text"] for row in rows} == dict(enumerate(documents))
    for row in rows:
        assert np.abs(np.array(row["embeddings"]) - expected[row["n"]]).max() < 3e-4
    assert "EmbeddingCreatorStage tokenizer: documents cut for the model" in result.summary()
    table = pa.concat_tables(pq.read_table(path) for path in sorted((tmp_path / "parquet").glob("*.parquet")))
    assert table.schema.field("embeddings").type == pa.list_(pa.float16(), 384)
    by_number = {row["n"]: row["embeddings"] for row in table.to_pylist()}
    assert by_number == {row["n"]: row["embeddings"] for row in rows}


def test_the_stage_is_known_by_name_in_yaml(tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text(
        "stages:\n  - JsonlReader: {file_paths: a.jsonl}\n  - EmbeddingCreatorStage: {dtype: float16}\n"
    )
    (tmp_path / "a.jsonl").write_text('{"text": "fox"}\n')
    pipeline = Pipeline.from_yaml(tmp_path / "p.yaml")
    assert "EmbeddingCreatorStage model" in [stage.name for stage in pipeline.stages[1].flatten()]
    assert "dtype: float16" in pipeline.to_yaml()
