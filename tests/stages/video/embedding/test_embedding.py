"""Embeddings of clips: by Cosmos-Embed1, by models of images, and the aesthetic filter."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.models.video import checkpoints
from tests.models.vision import checkpoints as images
from tests.stages.video.embedding.made import after, clip
from tests.videos.made import batch

pytest.importorskip("av")

from gristmill.errors import ModelError
from gristmill.stages.image.embedders.made_by import SPACE_KEY
from gristmill.stages.video.embedding import (
    ClipEmbeddingStage,
    CosmosEmbed1EmbeddingStage,
    CosmosEmbed1FrameCreationStage,
    clips,
)
from gristmill.stages.video.embedding.cosmos import COSMOS_FRAMES, sample_times
from gristmill.stages.video.embedding.images import middle_times
from gristmill.stages.video.filtering import ClipAestheticFilterStage
from gristmill.videos.decode import frames


@pytest.fixture
def seed() -> int:
    drawn = random.randrange(2**31)
    print("seed", drawn)
    return drawn


def numbers(task: Any, field: str = "embedding") -> Any:
    return np.array(task.data.column(field).to_pylist())


def test_cosmos_embeds_eight_frames_of_each_clip(tmp_path: Path, seed: int) -> None:
    parts = checkpoints.save_cosmos(tmp_path, seed)
    encoded = [clip(seed + number, 36, 12) for number in range(3)]
    task = batch([*encoded[:2], b"no video", encoded[2]], [3.0, 3.0, 3.0, 3.0])
    stages = [
        CosmosEmbed1FrameCreationStage(model=str(tmp_path), target_fps=6),
        CosmosEmbed1EmbeddingStage(model_dir=str(tmp_path)),
    ]

    [made] = after(stages[0], [task])
    [bad] = made.account.bad
    [found] = after(stages[1], [made])

    assert (bad.file, bad.position, bad.reason) == ("film.mp4", 2, "damaged")
    chosen = [number * 2 / 6 for number in range(8)]  # 18 frames at this rate, every second
    pixels = [[one.pixels for one in frames(data, times=chosen, size=(28, 28), resize="bicubic")] for data in encoded]
    expected = checkpoints.cosmos_reference(parts, np.array(pixels))
    assert COSMOS_FRAMES not in found.data.column_names
    assert found.data.schema.field("embedding").type == pa.list_(pa.float32(), 24)
    assert b"cosmos-embed1" in found.data.schema.field("embedding").metadata[SPACE_KEY.encode()]
    assert np.abs(numbers(found) - expected).max() < 2e-5


def test_frames_come_from_the_video_where_there_is_no_encoded_clip(tmp_path: Path, seed: int) -> None:
    folder = tmp_path / "model"
    checkpoints.save_cosmos(folder, seed)
    film = tmp_path / "film.mp4"
    film.write_bytes(clip(seed, 48, 12))
    task = batch([None], [3.5], video=pa.array([str(film)]), start_s=pa.array([1.5]))
    [made] = after(CosmosEmbed1FrameCreationStage(model=str(folder), target_fps=4), [task])
    times = [1.5 + number / 4 for number in range(8)]
    expected = [one.pixels for one in frames(str(film), times=times, size=(28, 28), resize="bicubic")]
    found = np.frombuffer(made.data.column(COSMOS_FRAMES)[0].as_py(), np.uint8).reshape(8, 28, 28, 3)
    assert (found == np.array(expected)).all()


def test_times_of_frames() -> None:
    assert sample_times(10, 2, 8) == [0, 1, 2, 3, 4, 5, 6, 7]
    assert sample_times(4, 2, 8) == [0, 0.5, 1, 1.5, 2, 2.5, 3, 3.5]
    assert sample_times(2, 2, 8) == [0, 0.25, 0.5, 0.75, 1, 1.25, 1.5, 1.75]
    assert middle_times(4, 1, 32) == [0.5, 1.5, 2.5, 3.5]
    assert middle_times(0.2, 1, 32) == [0.1]
    assert middle_times(100, 1, 2) == [25, 75]


def test_frames_of_many_clips_are_several_tasks(tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoints.save_cosmos(tmp_path, seed)
    one = 8 * 28 * 28 * 3
    monkeypatch.setattr(clips, "TASK_BYTES", 2 * one)
    data = [clip(seed, 12, 12), None, clip(seed + 1, 12, 12), clip(seed + 2, 12, 12), b"broken"]
    task = batch(data, video=pa.array([None] * 5, pa.large_string()))
    made = after(CosmosEmbed1FrameCreationStage(model=str(tmp_path)), [task])
    assert [part.data.column("clip_id").to_pylist() for part in made] == [
        ["film.mp4-0000", "film.mp4-0002"],
        ["film.mp4-0003"],
    ]
    assert [[one.position for one in part.account.bad] for part in made] == [[1], [4]]
    assert all(part.data.column(COSMOS_FRAMES).nbytes <= 2 * one for part in made)


@pytest.mark.parametrize("normalize", [True, False])
def test_a_clip_is_the_mean_of_its_frames(tmp_path: Path, seed: int, normalize: bool) -> None:
    model = images.save("clip", tmp_path, seed)
    images.preprocessor(tmp_path, **images.CLIP_CONFIG)
    encoded = [clip(seed, 24, 12), clip(seed + 1, 12, 12)]
    stage = ClipEmbeddingStage(model=str(tmp_path), target_fps=2, normalize=normalize)
    [found] = after(stage, [batch(encoded, [2.0, 1.0])])

    for data, length, row in zip(encoded, [2.0, 1.0], numbers(found), strict=True):
        shown = [one.pixels for one in frames(data, times=middle_times(length, 2, 32))]
        rows = images.reference(model, images.CLIP_CONFIG, shown)
        assert len(rows) == 2 * length
        if normalize:
            mean = (rows / np.linalg.norm(rows, axis=1, keepdims=True)).mean(0)
            expected = mean / np.linalg.norm(mean)
        else:
            expected = rows.mean(0)
        assert np.abs(row - expected).max() < 2e-5 * np.abs(expected).max() + 1e-6


def test_a_batch_without_a_readable_clip_stays_empty(tmp_path: Path, seed: int) -> None:
    images.save("clip", tmp_path, seed)
    images.preprocessor(tmp_path, **images.CLIP_CONFIG)
    [found] = after(ClipEmbeddingStage(model=str(tmp_path)), [batch([b"broken"])])
    assert found.num_items == 0
    assert found.data.schema.field("embedding").type == pa.list_(pa.float32(), 20)


@pytest.mark.parametrize("reduction", ["mean", "min"])
def test_the_aesthetic_filter_scores_each_frame(tmp_path: Path, seed: int, reduction: Any) -> None:
    from safetensors.numpy import save_file

    model = images.save("clip", tmp_path / "clip", seed)
    images.preprocessor(tmp_path / "clip", **images.CLIP_CONFIG)
    draw = np.random.default_rng(seed)
    weight = draw.normal(size=(1, 20)).astype(np.float32)
    save_file({"weight": weight, "bias": np.array([5], np.float32)}, tmp_path / "head.safetensors")
    encoded = [clip(seed + number, 24, 12) for number in range(4)]
    expected = []
    for data in encoded:
        shown = [one.pixels for one in frames(data, times=middle_times(2.0, 2, 32))]
        rows = images.reference(model, images.CLIP_CONFIG, shown)
        each = (rows / np.linalg.norm(rows, axis=1, keepdims=True)) @ weight[0] + 5
        expected.append(each.min() if reduction == "min" else each.mean())
    threshold = float(np.mean(sorted(expected)[1:3]))

    stage = ClipAestheticFilterStage(
        model=str(tmp_path / "head.safetensors"),
        embedding_model=str(tmp_path / "clip"),
        score_threshold=threshold,
        reduction=reduction,
        target_fps=2,
    )
    [found] = after(stage, [batch(encoded, [2.0] * 4)])

    kept = [number for number, score in enumerate(expected) if score >= threshold]
    assert len(kept) == 2
    assert found.data.column("clip_id").to_pylist() == [f"film.mp4-{number:04}" for number in kept]
    assert np.abs(numbers(found, "aesthetic_score") - np.array(expected)[kept]).max() < 1e-4
    [dropped] = found.account.dropped
    assert list(dropped.reasons) == ["aesthetic"] * 2
    assert not [name for name in found.data.column_names if name.startswith("_gristmill_frame")]


def test_wrong_arguments_are_named(tmp_path: Path, seed: int) -> None:
    with pytest.raises(ValueError, match="variant must be one of"):
        CosmosEmbed1FrameCreationStage(variant="720p")
    with pytest.raises(ValueError, match="target_fps must be above 0"):
        CosmosEmbed1FrameCreationStage(target_fps=0)
    with pytest.raises(ValueError, match="dtype must be"):
        CosmosEmbed1EmbeddingStage(dtype="int8")
    with pytest.raises(ValueError, match="reduction must be"):
        ClipAestheticFilterStage(reduction="max")  # type: ignore[arg-type]
    with pytest.raises(ModelError, match="there is no folder"):
        CosmosEmbed1EmbeddingStage(model="./nothing").check_needs()
    checkpoints.save_captioner("qwen2_5_vl", tmp_path, seed)
    with pytest.raises(ModelError, match="use ClipEmbeddingStage"):
        CosmosEmbed1FrameCreationStage(model=str(tmp_path)).check_needs()
