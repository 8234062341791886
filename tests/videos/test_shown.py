"""Videos and clips as people see them."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("av")

from tests.videos.made import blank, encoded

from gristmill.images.shown import thumbnail_of
from gristmill.report.record import THUMBNAIL, text_and_id
from gristmill.videos.shown import is_video, name_of, still, words


@pytest.fixture(scope="module")
def clip() -> bytes:
    """A second of grey, then one of white."""
    return encoded([*blank(64, 10, 192, 96), *blank(255, 10, 192, 96)], fps=10)


def test_a_text_with_a_field_of_this_name_is_no_video():
    assert not is_video({"id": "1", "text": "words", "video": "https://example.org/v"})
    assert is_video({"video": "a.mp4", "video_id": "a.mp4"})
    assert name_of({"video_id": "a.mp4", "clip_id": "a.mp4@1.000-2.000"}) == "a.mp4@1.000-2.000"
    assert name_of({"video_id": "a.mp4"}) == "a.mp4"


def test_a_still_is_the_middle_of_the_clip(clip, tmp_path):
    path = tmp_path / "a.mp4"
    path.write_bytes(clip)
    known = {"video": str(path), "video_id": "a.mp4"}
    for times, brightness in (((0.0, 0.9), 64), ((1.1, 2.0), 255)):
        pixels = still({**known, "start_s": times[0], "end_s": times[1]})
        assert pixels is not None and pixels.shape == (48, 96, 3) and abs(pixels.mean() - brightness) < 5
    with_bytes = still({"video": "gone.mp4", "video_id": "gone.mp4", "clip": clip, "start_s": 70.0, "end_s": 72.0})
    assert with_bytes is not None and abs(with_bytes.mean() - 255) < 5
    assert thumbnail_of(with_bytes).startswith("data:image/jpeg;base64,")


@pytest.mark.parametrize("video", ["gone.mp4", "s3://bucket/a.mp4", "page.mp4"])
def test_what_cannot_be_read_has_no_still(video, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("page.mp4").write_bytes(b"<!doctype html>")
    record = {"video": video, "video_id": video, "start_s": 0.0, "end_s": 1.0}
    assert still(record) is None
    assert text_and_id(record) == {
        "text": "",
        "characters": 0,
        "id": video,
        "video": "0.00 s to 1.00 s",
        THUMBNAIL: "",
    }


def test_words_name_codec_size_and_times():
    known = {"video": "a.mp4", "video_id": "a.mp4", "width": 640, "height": 272, "video_codec": "hevc"}
    assert words({**known, "duration_s": 10.0}) == "hevc, 640 x 272, 10.00 s"
    assert words({**known, "start_s": 1.5, "end_s": 3.0}, "12 kB") == "hevc, 640 x 272, 1.50 s to 3.00 s, 12 kB"
