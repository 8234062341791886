"""Frames of videos: which ones, when, and how they look."""

from __future__ import annotations

import random
import secrets
import subprocess
import sys

import numpy as np
import pytest

pytest.importorskip("av")

from tests.videos import corpus
from tests.videos.corpus import is_upright, number_of

from gristmill.videos.decode import frames
from gristmill.videos.errors import BadVideo

FORMATS = [
    ("libx264", "mp4", {"bf": "3"}),
    ("libx264", "matroska", {"bf": "3", "x264-params": "open-gop=1"}),
    ("libx265", "mp4", {"x265-params": "log-level=none:open-gop=1:bframes=4:keyint=12"}),
    ("libvpx-vp9", "webm", {}),
    ("libsvtav1", "mp4", {}),
    ("mpeg4", "avi", {}),
    ("mpeg4", "mp4", {"bf": "2"}),
    ("libx264", "mpegts", {"bf": "3"}),
    ("libx264", "flv", {"bf": "2"}),
    ("libx264", "h264", {"bf": "2"}),
    ("mpeg2video", "mpeg", {"bf": "2"}),
]


def numbers(*args, **kwargs) -> list[int]:
    return [number_of(one.pixels) for one in frames(*args, **kwargs)]


@pytest.mark.parametrize(("codec", "container", "options"), FORMATS)
def test_any_range_has_the_frames_that_begin_in_it(video, codec, container, options):
    """Also after a seek: a range gives the frames that decoding from the start gives."""
    data = video(200, codec, 25, container, options=options)
    whole = list(frames(data))
    assert [number_of(one.pixels) for one in whole] == list(range(200))
    assert [one.index for one in whole] == list(range(200))
    assert [one.time_s for one in whole] == pytest.approx([n / 25 for n in range(200)], abs=0.0015)
    seed = secrets.randbits(32)
    print("seed", seed)
    rng = random.Random(seed)
    for _ in range(5):
        start = rng.uniform(0, 7.9)
        end = start + rng.uniform(0.05, 1)
        found = list(frames(data, start, end))
        expected = [one for one in whole if start <= one.time_s < end]
        assert [one.time_s for one in found] == pytest.approx([one.time_s for one in expected], abs=1e-6), (start, end)
        assert all(np.array_equal(a.pixels, b.pixels) for a, b in zip(found, expected, strict=True)), (start, end)


def test_a_video_that_starts_later_starts_at_zero(video):
    plain = video(100, options={"bf": "2"})
    late = video(100, container="mpegts", options={"bf": "2"}, muxer={"output_ts_offset": "500"})
    delayed = video(100, options={"bf": "2"}, ticks=[7000 + 40 * n for n in range(100)])
    for data in (late, delayed):
        assert numbers(data) == numbers(plain) == list(range(100))
        assert numbers(data, 3.0, 3.2) == numbers(plain, 3.0, 3.2) == [75, 76, 77, 78, 79]
        assert next(frames(data)).time_s == 0.0


def test_frames_of_a_variable_rate_have_their_own_times(video):
    ticks = [0, 10, 500, 510, 520, 1500, 3000, 3010, 4000]
    data = video(9, ticks=ticks)
    assert [one.time_s for one in frames(data)] == pytest.approx([tick / 1000 for tick in ticks], abs=0.001)
    assert numbers(data, 0.5, 3.005) == [2, 3, 4, 5, 6]
    assert numbers(data, 0, 4, rate=2) == [0, 2, 4, 5, 5, 5, 6, 7]
    assert numbers(data, times=[0.2, 0.2, 1.4, 3.5, 99]) == [1, 1, 4, 7, 8]


def test_a_rate_gives_the_frame_that_is_shown(video):
    data = video(100)
    assert numbers(data, rate=5) == list(range(0, 100, 5))
    assert numbers(data, 1, 2, rate=4) == [25, 31, 37, 43]
    assert numbers(data, 0.99, 1.1, rate=50) == [24, 25, 25, 26, 26, 27][:6]
    assert numbers(data, 3.9, rate=25) == [97, 98, 99]
    assert numbers(data, 3.5, 60, rate=1) == [87]
    assert len(numbers(data, rate=50)) == 200
    assert [one.index for one in frames(data, 2, 3, rate=3)] == [0, 1, 2]


def test_times_may_repeat_and_lie_outside(video):
    data = video(100)
    assert numbers(data, times=[-1, 0, 0.039, 0.04, 2.5, 2.51, 3.96, 50]) == [0, 0, 0, 1, 62, 62, 99, 99]
    assert numbers(data, times=[]) == []
    with pytest.raises(ValueError, match="must not decrease"):
        numbers(data, times=[1, 0])
    with pytest.raises(ValueError, match="exclude each other"):
        numbers(data, times=[1], rate=2)


@pytest.mark.parametrize("turned", [90, 180, 270])
def test_turned_videos_are_upright(video, turned):
    for size in (None, (32, 96)):
        one = next(frames(video(5, turned=turned), size=size))
        assert one.pixels.shape == ((64, 128, 3) if size is None else (32, 96, 3))
        assert is_upright(one.pixels) and number_of(one.pixels) == 0
    assert numbers(video(5, turned=turned)) == list(range(5))


@pytest.mark.parametrize("resize", ["bilinear", "bicubic", "area", "lanczos", "nearest"])
def test_frames_are_resized(video, resize):
    found = list(frames(video(20), size=(27, 48), resize=resize))
    assert {one.pixels.shape for one in found} == {(27, 48, 3)}
    assert [number_of(one.pixels) for one in found] == list(range(20))


def test_the_pixels_do_not_depend_on_threads(video):
    for codec in ("libx264", "libvpx-vp9"):
        data = video(60, codec, container="matroska")
        one, four = (list(frames(data, threads=threads, size=(33, 70))) for threads in (1, 4))
        assert all(np.array_equal(a.pixels, b.pixels) and a == a for a, b in zip(one, four, strict=True))


def test_damage_ends_the_frames_with_a_reason(video):
    data = corpus.damaged(video(100, options={"crf": "5"}))
    good = []
    with pytest.raises(BadVideo, match="damaged"):
        for one in frames(data):
            good.append(number_of(one.pixels))
    assert good == list(range(len(good))) and 20 < len(good) < 99
    some = [number_of(one.pixels) for one in frames(data, tolerant=True)]
    assert some[: len(good)] == good and some[-1] == 99


def test_the_frames_before_the_end_of_a_cut_file_are_given(video):
    data = corpus.indexed_first(video(100, options={"crf": "5"}))
    cut = data[: int(len(data) * 0.6)]
    good = []
    with pytest.raises(BadVideo, match=r"truncated|damaged"):
        for one in frames(cut):
            good.append(number_of(one.pixels))
    assert good == list(range(len(good))) and 20 < len(good) < 99
    assert number_of(list(frames(cut, tolerant=True))[-1].pixels) >= good[-1]
    assert numbers(cut, 0.0, 0.2) == [0, 1, 2, 3, 4]
    with pytest.raises(BadVideo):
        numbers(cut, 3.5, 3.9)


def test_frames_are_decoded_one_at_a_time(video):
    """The first frame of a long video comes without the others, and an iterator may be left."""
    found = frames(video(200))
    assert number_of(next(found).pixels) == 0
    found.close()


def test_a_file_of_another_size_is_refused(video, tmp_path):
    path = tmp_path / "v.mp4"
    path.write_bytes(video(5))
    assert len(list(frames(str(path), file_size=len(video(5))))) == 5
    with pytest.raises(BadVideo, match="changed"):
        list(frames(str(path), file_size=len(video(5)) + 1))


def test_an_edit_list_begins_later(video):
    """The first ten frames are decoded, and not shown."""
    data = bytearray(video(30, gop=30))
    place = data.index(b"elst") + 12
    length, begin = (int.from_bytes(data[place + n : place + n + 4], "big") for n in (0, 4))
    data[place : place + 8] = (length - 400).to_bytes(4, "big") + (begin + 10 * 512).to_bytes(4, "big")
    found = list(frames(bytes(data)))
    assert [number_of(one.pixels) for one in found] == list(range(10, 30)) and found[0].time_s == 0.0
    assert numbers(bytes(data), 0.2, 0.4) == [15, 16, 17, 18, 19]


def test_a_codec_without_a_decoder(video):
    with pytest.raises(BadVideo, match="a codec that cannot be decoded"):
        list(frames(video(5).replace(b"avc1", b"zzzz")))


MEMORY = """
import resource, sys
from gristmill.videos.decode import frames
from gristmill.videos.errors import BadVideo
from gristmill.videos.probe import probe

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10

probe(sys.argv[1])
next(frames(sys.argv[1]))
before = peak()
assert sum(1 for one in frames(sys.argv[1])) == 120
try:
    probe(sys.argv[2])
    raise SystemExit("it was not refused")
except BadVideo as error:
    assert str(error) == "too many pixels"
print(peak() - before)
"""


def test_memory_does_not_grow_with_the_length_or_a_declared_size(video, tmp_path):
    """All frames would take 330 MB, the large one 800."""
    (tmp_path / "long.mp4").write_bytes(video(120, size=(1280, 720), gop=60))
    (tmp_path / "huge.ivf").write_bytes(corpus.huge())
    command = [sys.executable, "-c", MEMORY, str(tmp_path / "long.mp4"), str(tmp_path / "huge.ivf")]
    grown = int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    assert grown < 60
