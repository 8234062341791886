"""Motion by the vectors of codecs, and by differences of frames."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from tests.videos.made import HEIGHT, WIDTH, blank, encoded, panned, still, texture, with_bars

from gristmill.videos.bars import bars
from gristmill.videos.errors import BadVideo
from gristmill.videos.motion import DIFFERENCES, VECTORS, motion_of

THRESHOLD = 0.00098
CODECS: dict[str, tuple[str, dict[str, str], str]] = {
    "H.264": ("libx264", {"preset": "veryfast"}, VECTORS),
    "H.264 without B-frames": ("libx264", {"preset": "veryfast", "bf": "0"}, VECTORS),
    "H.264 of key frames": ("libx264", {"preset": "veryfast", "g": "1"}, DIFFERENCES),
    "MPEG-4 part 2": ("mpeg4", {"qscale": "3", "flags": "+qscale"}, VECTORS),
    "HEVC": ("libx265", {}, DIFFERENCES),
    "VP9": ("libvpx-vp9", {"deadline": "realtime", "cpu-used": "8"}, DIFFERENCES),
}


@pytest.mark.parametrize("codec", CODECS)
def test_the_speed_of_a_pan_is_measured_and_the_method_is_named(codec: str) -> None:
    name, options, method = CODECS[codec]
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")
    for speed in (0.5, 1.0, 2.0):
        found = motion_of(encoded(panned(seed, 24, speed), name, options=options))
        assert found.method == method
        assert found.mean == pytest.approx(speed / (WIDTH + HEIGHT), rel=0.45), speed
    assert motion_of(encoded(still(seed, 24), name, options=options)).mean < THRESHOLD / 2


def test_the_speed_does_not_depend_on_the_rate_of_frames() -> None:
    slow = motion_of(encoded(panned(1, 24, 4.0), fps=15, options={"preset": "veryfast"}))
    fast = motion_of(encoded(panned(1, 96, 1.0), fps=60, options={"preset": "veryfast"}))
    assert slow.mean == pytest.approx(fast.mean, rel=0.2)


def test_a_region_without_motion_has_the_least() -> None:
    """A picture of 512 x 256 pixels has two patches. Only the right half moves."""
    wall = texture(1, 256, 256)

    def frames() -> Any:
        for right in panned(2, 16, 4.0, 256, 256):
            yield np.concatenate([wall, right], axis=1)

    by_vectors, by_differences = (
        motion_of(encoded(frames(), options={"preset": "veryfast", "g": group})) for group in ("250", "1")
    )
    for found, method in ((by_vectors, VECTORS), (by_differences, DIFFERENCES)):
        assert found.method == method
        assert found.mean > THRESHOLD
        assert found.least < found.mean / 10


def test_a_range_of_a_video_is_measured() -> None:
    """The first half stands still, the second moves."""

    def frames() -> Any:
        yield from still(3, 30)
        yield from panned(3, 30, 2.0)

    clip = encoded(frames(), options={"preset": "veryfast"})
    assert motion_of(clip, 0.0, 0.9).mean < THRESHOLD
    assert motion_of(clip, 1.1, 2.0).mean > THRESHOLD
    assert motion_of(clip, target_duration_ratio=0.5).mean < THRESHOLD
    assert motion_of(clip, target_duration_ratio=0.5).frames < motion_of(clip).frames


def test_motion_is_measured_so_many_times_per_second() -> None:
    clip = encoded(panned(4, 60), options={"preset": "veryfast", "bf": "0"})
    assert [motion_of(clip, target_fps=fps).frames for fps in (1.0, 2.0, 10.0)] == [6, 12, 59]


@pytest.mark.parametrize("codec", ["H.264", "HEVC"])
def test_a_clip_of_two_frames_and_repeated_frames_are_measured(codec: str) -> None:
    name, options, method = CODECS[codec]
    short = motion_of(encoded(panned(7, 2, 2.0), name, options=options))
    assert (short.method, short.frames) == (method, 1)
    assert short.mean > THRESHOLD

    def on_twos() -> Any:
        for frame in panned(8, 12, 2.0):
            yield frame
            yield frame

    assert motion_of(encoded(on_twos(), name, options={**options, "bf": "0"}), target_fps=1.0).mean > THRESHOLD


def test_a_single_frame_does_not_move_and_damage_has_a_reason() -> None:
    one = motion_of(encoded(still(5, 1)))
    assert (one.mean, one.least, one.method, one.frames) == (0.0, 0.0, DIFFERENCES, 0)
    for broken in (b"", b"no video at all", encoded(still(5, 3))[:300]):
        with pytest.raises(BadVideo):
            motion_of(broken)


@pytest.mark.parametrize(("fps", "ratio"), [(0.0, 1.0), (-1.0, 1.0), (2.0, 0.0), (2.0, 1.5)])
def test_wrong_arguments_are_refused(fps: float, ratio: float) -> None:
    with pytest.raises(ValueError, match="must be above 0"):
        motion_of(b"", target_fps=fps, target_duration_ratio=ratio)


def test_bars_are_found_on_opposite_sides_only() -> None:
    frames = np.stack(list(panned(6, 3)))
    assert bars(frames).share == 0
    boxed = np.stack(list(with_bars(frames, 12)))
    found = bars(boxed)
    assert (found.top, found.bottom, found.left, found.right) == (12, 12, 0, 0)
    assert found.share == pytest.approx(24 / HEIGHT)
    assert found.without(boxed).shape == (3, HEIGHT - 24, WIDTH, 3)
    pillars = boxed.transpose(0, 2, 1, 3)
    assert (bars(pillars).left, bars(pillars).right) == (12, 12)
    only_top = frames.copy()
    only_top[:, :12] = 0
    assert bars(only_top).share == 0, "a dark ceiling is no bar"
    in_one_frame = frames.copy()
    in_one_frame[0] = boxed[0]
    assert bars(in_one_frame).share == 0
    assert bars(np.stack(list(blank(0, 2)))).share == 0
