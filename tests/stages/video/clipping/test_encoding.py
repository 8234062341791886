"""Clips and frames as columns, in tasks of a limited size."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

pytest.importorskip("av")

from tests.videos import corpus
from tests.videos.conftest import video  # noqa: F401  # a fixture
from tests.videos.corpus import number_of

from gristmill.errors import PlanError
from gristmill.stages.video.clipping import (
    ClipFrameExtractionStage,
    ClipTranscodingStage,
    VideoFrameExtractionStage,
    clip_extraction_stages,
    clip_frame_extraction,
    video_frame_extraction,
)
from gristmill.stages.video.clipping.clip_frame_extraction import frames_column, frames_of
from gristmill.stages.video.clipping.video_frame_extraction import carried_frames
from gristmill.tasks import VideoTask
from gristmill.tasks.document import ID
from gristmill.videos.decode import frames
from gristmill.videos.probe import probe


def clips(folder: Path, data: bytes, *spans: tuple[float, float], **columns: Any) -> VideoTask:
    path = folder / "v.mp4"
    path.write_bytes(data)
    table = {
        "video": [str(path)] * len(spans),
        "video_id": ["v.mp4"] * len(spans),
        "clip_id": [f"v@{start}" for start, _ in spans],
        "start_s": pa.array([start for start, _ in spans], pa.float64()),
        "end_s": pa.array([end for _, end in spans], pa.float64()),
        ID: [f"{path}#0/{n}" for n in range(len(spans))],
    }
    return VideoTask(data=pa.table({**table, **columns}), task_id="0")


def numbers(data: bytes) -> list[int]:
    return [number_of(one.pixels) for one in frames(data)]


def test_clips_are_encoded_in_order(tmp_path, video):  # noqa: F811
    task = clips(tmp_path, video(100), (0, 1), (1, 2.5), (2, 2.2))
    (found,) = ClipTranscodingStage(preset="ultrafast").process(task)
    assert [numbers(clip) for clip in found.data["clip"].to_pylist()] == [
        list(range(25)),
        list(range(25, 63)),
        list(range(50, 55)),
    ]
    assert found.columns[:6] == ["video", "video_id", "clip_id", "start_s", "end_s", "clip"]


def test_tasks_have_a_limited_size(tmp_path, video, monkeypatch):  # noqa: F811
    monkeypatch.setattr(clip_extraction_stages, "MOST_TASK_BYTES", 6000)
    task = clips(tmp_path, video(100), *((n / 10, n / 10 + 1) for n in range(12)), (9, 10))
    found = list(ClipTranscodingStage(preset="ultrafast").process(task))
    sizes = [[len(clip) for clip in one.data["clip"].to_pylist()] for one in found]
    assert len(found) > 2 and all(len(some) == 1 or sum(some) <= 6000 for some in sizes)
    assert sum(map(len, sizes)) == 12 and sum(len(one.account.bad) for one in found) == 1
    assert [clip for one in found for clip in one.data["clip_id"].to_pylist()] == task.data["clip_id"].to_pylist()[:12]


def test_clips_that_cannot_be_made_are_bad_records(tmp_path, video):  # noqa: F811
    data = corpus.damaged(video(100, options={"crf": "5"}))
    (found,) = ClipTranscodingStage(preset="ultrafast").process(clips(tmp_path, data, (0, 1), (2, 3), (7, 8)))
    assert found.num_items == 1
    bad = [(one.position, one.reason, one.raw) for one in found.account.bad]
    assert bad == [(0, "damaged", b"clip 1"), (0, bad[1][1], b"clip 2")] and found.account.bad[0].file.endswith("v.mp4")
    (none,) = ClipTranscodingStage().process(clips(tmp_path, video(5), (7, 8)))
    assert none.num_items == 0 and "clip" in none.columns and len(none.account.bad) == 1
    changed = clips(tmp_path, video(5), (0, 1), video_bytes=[1])
    (none,) = ClipTranscodingStage().process(changed)
    assert [one.reason for one in none.account.bad] == ["the file changed while it was used"]


def test_a_whole_video_is_a_clip(tmp_path, video):  # noqa: F811
    task = clips(tmp_path, video(30), (0, 0))
    task.data = task.data.drop_columns(["clip_id", "start_s", "end_s"]).append_column("duration_s", pa.array([1.2]))
    (found,) = ClipTranscodingStage(preset="ultrafast").process(task)
    assert numbers(found.data["clip"][0].as_py()) == list(range(30))
    assert found.to_pylist()[0]["clip_id"] == "v.mp4@0.000-1.200"


def test_the_options_reach_the_encoder(tmp_path, video):  # noqa: F811
    task = clips(
        tmp_path, video(75, audio="aac", gop=25, options={"sc_threshold": "0", "crf": "30"}), (1, 2), (1.5, 2.5)
    )

    def made(**options: Any) -> list[bytes]:
        (found,) = ClipTranscodingStage(**options).process(task)
        clips: list[bytes] = found.data["clip"].to_pylist()
        return clips

    vp9 = made(encoder="libvpx-vp9", keep_audio=True)
    assert [probe(clip).video_codec for clip in vp9] == ["vp9"] * 2 and probe(vp9[0]).audio_codec == "aac"
    copied = made(copy_if_possible=True)
    plain = made()
    assert copied[0] != plain[0] and copied[1] == plain[1] and numbers(copied[0]) == numbers(plain[0])
    low = made(use_input_bit_rate=True)
    assert low != plain
    with pytest.raises(ValueError, match="encoder must be one of"):
        ClipTranscodingStage(encoder="libopenh264")
    gpu = ClipTranscodingStage(encoder="h264_nvenc")
    assert gpu.resources.requires_gpu
    with pytest.raises(PlanError, match="has no encoder"):
        gpu.setup()


def test_small_frames_of_whole_videos(tmp_path, video, monkeypatch):  # noqa: F811
    stage = VideoFrameExtractionStage()
    found = stage.process(clips(tmp_path, video(60), (0, 0)))
    small = carried_frames(memoryview(found.data["small_frames"][0].as_buffer()), (27, 48))
    assert small.shape == (60, 27, 48, 3) and [number_of(one) for one in small] == list(range(60))
    assert found.data["small_frame_times"][0].as_py() == pytest.approx([n / 25 for n in range(60)])
    monkeypatch.setattr(video_frame_extraction, "MOST_TASK_BYTES", 59 * 27 * 48 * 3)
    found = stage.process(clips(tmp_path, video(60), (0, 0)))
    assert found.data["small_frames"].to_pylist() == found.data["small_frame_times"].to_pylist() == [None]
    bad = stage.process(clips(tmp_path, b"nothing", (0, 0)))
    assert bad.num_items == 0 and [one.reason for one in bad.account.bad] == ["damaged"]


def test_frames_of_clips(tmp_path, video, monkeypatch):  # noqa: F811
    task = clips(tmp_path, video(100), (0, 1), (2, 4), (9, 10))
    stage = ClipFrameExtractionStage(("sequence", "middle"), (5, 2), (32, -1))
    (found,) = stage.process(task)
    names = [frames_column("sequence", 5), frames_column("sequence", 2), frames_column("middle", 0)]
    assert names == ["clip_frames_sequence_5", "clip_frames_sequence_2", "clip_frames_middle"]
    shown = [[[number_of(one) for one in some] for some in frames_of(found, name)] for name in names]
    assert shown[0] == [list(range(0, 25, 5)), list(range(50, 100, 5))]
    assert shown[1] == [[0, 12], [50, 62, 75, 87]] and shown[2] == [[12], [75]]
    assert frames_of(found, names[0])[0].shape == (5, 32, 64, 3)
    assert [one.reason for one in found.account.bad] == ["no frames in the time of the clip"]
    (encoded,) = ClipTranscodingStage(preset="ultrafast").process(clips(tmp_path, video(100), (0, 1), (2, 4)))
    (again,) = stage.process(encoded)
    assert [[[number_of(one) for one in some] for some in frames_of(again, name)] for name in names] == shown
    whole = ClipFrameExtractionStage()
    (full,) = whole.process(clips(tmp_path, video(100), (0, 1)))
    assert np.array_equal(frames_of(full, "clip_frames_sequence_2")[0][0], next(frames(video(100))).pixels)
    monkeypatch.setattr(clip_frame_extraction, "MOST_TASK_BYTES", 100_000)
    parts = list(whole.process(clips(tmp_path, video(100), *((n / 5, n / 5 + 1) for n in range(6)))))
    assert [part.num_items for part in parts] == [2, 2, 2]


def test_wrong_settings_of_frames_are_errors():
    for wrong in (
        {"extraction_policies": ("first",)},
        {"extraction_policies": ()},
        {"target_fps": (0,)},
        {"target_fps": ()},
        {"target_res": (0, 5)},
        {"target_res": (5,)},
    ):
        with pytest.raises(ValueError):
            ClipFrameExtractionStage(**wrong)
    with pytest.raises(ValueError):
        VideoFrameExtractionStage(output_hw=(0, 48))
