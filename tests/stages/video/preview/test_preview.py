"""Previews of clips."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from PIL import Image
from tests.videos.made import batch, encoded, panned, still

from gristmill.tasks.video import VideoTask
from gristmill.video import PreviewStage

FAST = {"preset": "veryfast"}


def previews(task: VideoTask, **options: Any) -> list[Any]:
    """The frames of the preview of each clip: (milliseconds, pixels)."""
    found = []
    for data in PreviewStage(**options).process(task).data.column("preview").to_pylist():
        with Image.open(io.BytesIO(data)) as image:
            assert image.format == "WEBP"
            frames = []
            for number in range(getattr(image, "n_frames", 1)):
                image.seek(number)
                image.load()
                frames.append((image.info.get("duration", 0), np.asarray(image.convert("RGB"))))
        found.append(frames)
    return found


def test_a_preview_has_the_frames_of_the_clip_and_takes_as_long() -> None:
    pictures = list(panned(1, 60, 2.0))
    [frames] = previews(batch([encoded(pictures, options=FAST)]), target_fps=5, quality=95)
    assert len(frames) == 10
    assert sum(duration for duration, _ in frames) == pytest.approx(2000, abs=20)
    for number, (_, pixels) in enumerate(frames):
        shown = pictures[int((number + 0.5) * 6)]
        assert np.abs(pixels.astype(int) - shown).mean() < 8


def test_sizes_keep_the_shape_and_a_low_clip_keeps_its_size() -> None:
    task = batch([encoded(panned(1, 6), options=FAST)])
    [[(_, small), *_]] = previews(task, target_height=30)
    assert small.shape == (30, 53, 3)
    [[(_, same), *_]] = previews(task)
    assert same.shape == (90, 160, 3)


def test_a_still_picture_and_a_single_frame_have_a_preview() -> None:
    for frames in previews(batch([encoded(still(1, n), options=FAST) for n in (1, 60)])):
        assert len(frames) >= 1
        assert np.abs(frames[0][1].astype(int) - next(still(1, 1))).mean() < 12


def test_the_same_clip_gives_the_same_bytes_and_other_levels_other_ones() -> None:
    clip = encoded(panned(1, 30), options=FAST)
    made = [PreviewStage().process(batch([clip])).data.column("preview")[0].as_py() for _ in range(2)]
    assert made[0] == made[1]
    best = PreviewStage(quality=90).process(batch([clip])).data.column("preview")[0].as_py()
    assert len(best) > len(made[0])


def test_a_preview_of_a_part_of_a_video(tmp_path: Path) -> None:
    pictures = [*still(1, 30), *still(2, 30)]
    (tmp_path / "film.mp4").write_bytes(encoded(pictures, options=FAST))
    task = batch([None, None])
    task.data = task.data.drop_columns(["video", "start_s", "end_s"])
    for name, values in {"video": [str(tmp_path / "film.mp4")] * 2, "start_s": [0.0, 1.0], "end_s": [1.0, 2.0]}.items():
        task.data = task.data.append_column(name, pa.array(values))
    for number, frames in enumerate(previews(task, clip_field="video")):
        assert np.abs(frames[0][1].astype(int) - pictures[30 * number]).mean() < 12


def test_clips_that_cannot_be_decoded_are_bad_records() -> None:
    made = PreviewStage().process(batch([None, b"none", encoded(panned(1, 6), options=FAST)]))
    assert made.num_items == 1
    assert [one.reason for one in made.account.bad] == ["no clip", "not a video of a known format"]


@pytest.mark.parametrize(
    "options", [{"target_fps": 0}, {"target_height": 8}, {"compression_level": 7}, {"quality": 101}, {"quality": 50.5}]
)
def test_wrong_arguments_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(options))):
        PreviewStage(**options)
