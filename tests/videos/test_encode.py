"""Clips: encoded, and copied."""

from __future__ import annotations

import io

import numpy as np
import pytest

pytest.importorskip("av")

import av
from tests.videos import corpus
from tests.videos.corpus import is_upright, number_of

from gristmill.videos.copy import copy_clip
from gristmill.videos.decode import frames
from gristmill.videos.encode import Encoding, can_encode, encode_pixels, transcode
from gristmill.videos.errors import BadVideo
from gristmill.videos.probe import probe


def numbers(data) -> list[int]:
    return [number_of(one.pixels) for one in frames(data)]


@pytest.mark.parametrize(("encoder", "codec"), [("libx264", "h264"), ("libvpx-vp9", "vp9")])
@pytest.mark.parametrize("source", [("libx264", "mp4"), ("libvpx-vp9", "webm"), ("libx265", "mp4")])
def test_a_clip_has_the_frames_of_its_time(video, encoder, codec, source):
    data = video(60, *source[:1], container=source[1])
    clip = transcode(data, 0.5, 1.5, Encoding(encoder))
    info = probe(clip)
    assert (info.video_codec, info.width, info.height, info.frames, info.fps) == (codec, 128, 64, 25, 25.0)
    assert info.duration_s == pytest.approx(1.0, abs=0.001) and info.audio_codec is None
    assert numbers(clip) == list(range(13, 38))
    assert [one.time_s for one in frames(clip)] == pytest.approx([n / 25 for n in range(25)], abs=0.001)


def test_the_bytes_of_a_clip_are_the_same_each_time(video):
    data = video(30, audio="aac")
    for encoding in (Encoding(), Encoding("libvpx-vp9"), Encoding(has_audio=True), Encoding(threads=2)):
        assert transcode(data, 0.2, 1, encoding) == transcode(data, 0.2, 1, encoding)
    assert b"Lavf" not in transcode(data, 0.2, 1) and b"Lavc" not in transcode(data, 0.2, 1, Encoding("libvpx-vp9"))


@pytest.mark.parametrize("turned", [90, 180, 270])
def test_clips_are_upright(video, turned):
    clip = transcode(video(5, turned=turned))
    assert (probe(clip).width, probe(clip).height, probe(clip).rotation) == (128, 64, 0)
    assert is_upright(next(frames(clip)).pixels) and numbers(clip) == list(range(5))


def test_a_variable_rate_stays_one(video):
    clip = transcode(video(9, ticks=[0, 10, 500, 510, 520, 1500, 3000, 3010, 4000]), 0.5, 3.005)
    assert [one.time_s for one in frames(clip)] == pytest.approx([0, 0.01, 0.02, 1.0, 2.5], abs=0.001)
    assert numbers(clip) == [2, 3, 4, 5, 6]
    assert probe(clip).duration_s == pytest.approx(2.51, abs=0.002)


def test_odd_sizes_lose_a_row_or_column(video):
    clip = transcode(encode_pixels([corpus.numbered(n, 131, 67) for n in range(5)], 10))
    assert (probe(clip).width, probe(clip).height) == (130, 66) and numbers(clip) == list(range(5))


def test_lower_quality_takes_fewer_bytes(video):
    data = video(60)
    best, worst = (transcode(data, encoding=Encoding(crf=crf)) for crf in (10, 45))
    assert len(worst) < len(best)
    assert len(transcode(data, encoding=Encoding(bit_rate=20_000))) < len(
        transcode(data, encoding=Encoding(bit_rate=900_000))
    )


@pytest.mark.parametrize(
    ("container", "codec", "audio", "kept"),
    [
        ("mp4", "libx264", "aac", "aac"),
        ("webm", "libvpx-vp9", "libopus", "opus"),
        ("mov", "libx264", "pcm_s16le", "aac"),
    ],
)
def test_sound_is_kept_if_it_is_asked_for(video, container, codec, audio, kept):
    data = video(75, codec, container=container, audio=audio)
    assert probe(transcode(data, 1, 2)).audio_codec is None
    for start, end in ((0, 1), (1.3, 2.3), (2, None)):
        clip = transcode(data, start, end, Encoding(has_audio=True))
        assert probe(clip).audio_codec == kept
        with av.open(io.BytesIO(clip)) as opened:
            sounds = [frame for frame in opened.decode(audio=0)]
        length = sum(frame.samples for frame in sounds) / sounds[0].sample_rate
        assert length == pytest.approx(1, abs=0.05)
        assert max(np.abs(frame.to_ndarray()).max() for frame in sounds) > 0.5
    assert probe(transcode(video(10), encoding=Encoding(has_audio=True))).audio_codec is None


@pytest.mark.parametrize(
    ("codec", "container", "options"),
    [
        ("libx264", "mp4", {"bf": "2", "sc_threshold": "0"}),
        ("libx264", "mpegts", {"bf": "2", "sc_threshold": "0"}),
        ("libx265", "mp4", {"x265-params": "log-level=none:open-gop=0:keyint=25:min-keyint=25:scenecut=0"}),
        ("libvpx-vp9", "webm", {"auto-alt-ref": "0", "keyint_min": "25"}),
        ("mpeg4", "avi", {"sc_threshold": "1000000000"}),
    ],
)
def test_packets_are_copied_between_key_frames(video, codec, container, options):
    data = video(100, codec, container=container, gop=25, options=options)
    for start, end in ((1, 3), (0, 2), (2, None), (0, None)):
        clip = copy_clip(data, start, end)
        assert clip is not None and clip == copy_clip(data, start, end)
        copied, meant = list(frames(clip)), list(frames(data, start, end))
        assert len(copied) == len(meant) > 0
        assert all(np.array_equal(a.pixels, b.pixels) for a, b in zip(copied, meant, strict=True))
        assert [one.time_s for one in copied] == pytest.approx([one.time_s - start for one in meant], abs=0.002)
        assert probe(clip).video_codec == probe(data).video_codec
    assert copy_clip(data, 1.04, 3) is None and copy_clip(data, 0.5, 3) is None
    if "bf" in options:
        assert any(copy_clip(data, 1, 2 + n / 25) is None for n in range(1, 6))
    for n in range(1, 6):  # where it is possible, the frames are right
        if (clip := copy_clip(data, 1, 2 + n / 25)) is not None:
            assert numbers(clip) == list(range(25, 50 + n))


def test_what_cannot_be_copied(video):
    assert copy_clip(video(25, turned=90)) is None
    assert copy_clip(video(25, "mpeg2video", container="mpegts")) is None
    open_gop = video(
        50,
        "libx265",
        gop=12,
        options={"x265-params": "log-level=none:open-gop=1:bframes=4:keyint=12:min-keyint=12:scenecut=0"},
    )
    keys = [round(n * 0.48, 2) for n in range(1, 4)]
    assert all(
        copy_clip(open_gop, key) is None or numbers(copy_clip(open_gop, key)) == list(range(round(key * 25), 50))
        for key in keys
    )


def test_sound_is_copied_with_the_packets(video):
    data = video(75, audio="aac", gop=25, options={"sc_threshold": "0"})
    assert probe(copy_clip(data, 1, 2, has_audio=True)).audio_codec == "aac"
    assert probe(copy_clip(data, 1, 2)).audio_codec is None


def test_damage_and_times_without_frames_are_errors(video, tmp_path):
    data = corpus.damaged(video(100, options={"crf": "5"}))
    assert numbers(transcode(data, 0, 1)) == list(range(25))
    with pytest.raises(BadVideo, match="damaged"):
        transcode(data)
    with pytest.raises(BadVideo, match="no frames in the time of the clip"):
        transcode(video(10), 5, 6)
    with pytest.raises(BadVideo, match="no frames in the time of the clip"):
        copy_clip(video(10), 5, 6)
    path = tmp_path / "v.mp4"
    path.write_bytes(video(10))
    with pytest.raises(BadVideo, match="changed"):
        transcode(str(path), size=3)


def test_pixels_become_a_video():
    clip = encode_pixels((corpus.numbered(n) for n in range(20)), 10)
    assert numbers(clip) == list(range(20)) and probe(clip).duration_s == pytest.approx(2)
    assert can_encode(Encoding()) and can_encode(Encoding("libvpx-vp9"))


def test_wrong_settings_are_errors():
    with pytest.raises(ValueError, match="encoder must be one of"):
        Encoding("libfoo")
    with pytest.raises(ValueError, match="threads"):
        Encoding(threads=0)
