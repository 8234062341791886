"""How much moves in a video: by the motion vectors of its codec, or by differences of frames where there are none.

Both give a speed: the distance that a point of the picture moves in a 30th of a second, as a share of the width plus
the height of the frame. So the score does not depend on the size of the frame or on the number of frames per second.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gristmill.lazy import Array, np
from gristmill.videos.source import Location, open_video
from gristmill.videos.stream import RawFrame, raw_frames, video_stream

if TYPE_CHECKING:
    from av import VideoFrame

VECTORS, DIFFERENCES = "vectors", "differences"
"""The methods by which motion is measured."""
PATCH = 256
"""Pixels of the sides of a patch, about: a frame is divided into equal ones."""
EXPORTING = ("h264", "mpeg1video", "mpeg2video", "mpeg4", "h263", "flv1", "msmpeg4v2", "msmpeg4v3", "wmv1", "wmv2")
"""The codecs whose motion vectors FFmpeg exports."""
LEAST_COVERED = 0.5
"""Of the frames' area. If vectors cover less, most blocks have no reference, and vectors tell little of the motion."""
SPAN_S = 0.1
"""Each measurement takes so long: animations and converted films repeat frames, so two of them may be equal."""
_PER_SECOND = 30
_DECODED_SIDE = 240
"""Frames are reduced to this short side to compare them."""
_CELLS = 48
"""Their pixels are averaged in squares, about so many on the short side: the noise of encoding averages out."""
_NOISE = 1.0
"""Differences of these averages, of 255, that encoding alone makes."""
_LEAST_SLOPE = 1.0
"""The least difference of neighbouring pixels that is assumed: nothing can be seen to move on a plain wall."""
_SEEN = 2 / math.pi
"""The share of a slope that lies in the direction of the motion, on average."""
_P_FRAME = 2
_I_FRAME = 1


@dataclass(frozen=True, slots=True)
class Motion:
    """The motion in a video."""

    mean: float
    """The mean speed of all points."""
    least: float
    """The mean speed in the patch in which least moves."""
    method: str
    """`VECTORS` or `DIFFERENCES`."""
    frames: int
    """The frames, or pairs of frames, that were measured. With none the video has a single frame, and nothing moves."""


def motion_of(
    location: Location,
    start_s: float = 0.0,
    end_s: float | None = None,
    *,
    target_fps: float = 2.0,
    target_duration_ratio: float = 1.0,
    options: Mapping[str, Any] | None = None,
) -> Motion:
    """Measure the motion between two times of a video, ``target_fps`` times per second.

    ``target_duration_ratio`` is the part of this time that is looked at. Vectors are taken from P-frames, whose
    reference is known. A video without such frames, with few vectors, or of a codec that exports none is measured by
    differences. Raise `BadVideo` if it cannot be decoded.
    """
    check(target_fps, target_duration_ratio)
    with open_video(location, options) as container:
        stream = video_stream(container)
        exports = stream.codec_context is not None and stream.codec_context.name in EXPORTING
        if end_s is None and target_duration_ratio < 1 and container.duration:
            end_s = container.duration / 1_000_000
    if end_s is not None:
        end_s = start_s + (end_s - start_s) * target_duration_ratio
    found: Motion | None = None
    if exports:
        found = _by_vectors(raw_frames(location, start_s, end_s, options, motion_vectors=True), start_s, target_fps)
    return found or _by_differences(raw_frames(location, start_s, end_s, options), start_s, target_fps)


def check(target_fps: float, target_duration_ratio: float) -> None:
    """Raise `ValueError` for arguments that `motion_of` does not take."""
    if not target_fps > 0:
        raise ValueError(f"target_fps must be above 0, not {target_fps!r}.")
    if not 0 < target_duration_ratio <= 1:
        raise ValueError(f"target_duration_ratio must be above 0 and at most 1, not {target_duration_ratio!r}.")


def _next(time: float, start: float, rate: float) -> float:
    """The next time at which a frame is measured."""
    return start + (math.floor((time - start) * rate + 1e-6) + 1) / rate


def _by_vectors(frames: Iterator[RawFrame], start: float, rate: float) -> Motion | None:
    """Measure by motion vectors; None if there are too few of them."""
    sums: _Patches | None = None
    before: float | None = None
    due, until = start, -1.0
    for one in frames:
        time, frame, kind = one.time_s, one.frame, int(one.frame.pict_type)
        if kind == _P_FRAME and before is not None and (time >= due or time < until - 0.001):
            if sums is None or sums.size != (frame.width, frame.height):
                sums = _Patches(frame.width, frame.height)
            sums.add(_vectors(frame), (time - before) * _PER_SECOND)
            if time >= due:
                due, until = _next(time, start, rate), time + SPAN_S
        if kind in (_I_FRAME, _P_FRAME):
            before = time
    return None if sums is None else sums.motion()


def _vectors(frame: VideoFrame) -> Array | None:
    """The motion vectors of a frame to frames before it; None if there are none."""
    from av.sidedata.motionvectors import MotionVectors

    for side in frame.side_data:
        if isinstance(side, MotionVectors) and len(side):
            found: Array = side.to_ndarray()
            return found[(found["source"] < 0) & (found["motion_scale"] > 0)]
    return None


class _Patches:
    """Sums of vectors in the patches of frames."""

    def __init__(self, width: int, height: int) -> None:
        self.size = width, height
        self._columns, self._rows = _count(width), _count(height)
        self._moved, self._times = np.zeros((2, self._columns * self._rows))
        self._covered = 0.0
        self._frames = 0

    def add(self, vectors: Array | None, time: float) -> None:
        """Add the vectors of a frame, each for the area of its block. ``time`` is that to the reference, in 30ths."""
        self._frames += 1
        if vectors is None:
            return
        width, height = self.size
        scale = vectors["motion_scale"].astype(np.float64)
        distances = np.hypot(vectors["motion_x"] / scale, vectors["motion_y"] / scale) / (width + height)
        areas = vectors["w"].astype(np.float64) * vectors["h"]
        column = np.clip(vectors["dst_x"].astype(np.int64) * self._columns // width, 0, self._columns - 1)
        row = np.clip(vectors["dst_y"].astype(np.int64) * self._rows // height, 0, self._rows - 1)
        patch, count = row * self._columns + column, len(self._moved)
        self._moved += np.bincount(patch, distances * areas, count)
        self._times += np.bincount(patch, areas, count) * time
        self._covered += float(areas.sum())

    def motion(self) -> Motion | None:
        width, height = self.size
        there = self._times > 0
        if not there.any() or self._covered < LEAST_COVERED * width * height * self._frames:
            return None
        least = float((self._moved[there] / self._times[there]).min())
        return Motion(float(self._moved.sum() / self._times.sum()), least, VECTORS, self._frames)


def _count(side: int) -> int:
    return max(1, round(side / PATCH))


def _by_differences(frames: Iterator[RawFrame], start: float, rate: float) -> Motion:
    """Measure by pairs of frames about a tenth of a second apart.

    The difference in time of a pixel, divided by the slope of the brightness around it, is the distance that would
    explain the difference. It is computed from means over a patch. Large motion is underestimated.
    """
    sums: Array | None = None
    before: tuple[float, Array] | None = None
    last: RawFrame | None = None
    due, pairs = start, 0

    def add(earlier: tuple[float, Array], later: RawFrame) -> None:
        nonlocal sums, pairs
        grey = _grey(later.frame)
        if grey.shape != earlier[1].shape:
            return
        distances = _distances(earlier[1], grey, _count(later.frame.height), _count(later.frame.width))
        distances /= sum(grey.shape) * (later.time_s - earlier[0]) * _PER_SECOND
        if sums is None or sums.shape != distances.shape:
            sums, pairs = np.zeros_like(distances), 0
        sums += distances
        pairs += 1

    for last in frames:
        if before is not None and last.time_s - before[0] >= SPAN_S - 0.001:
            add(before, last)
            before, due = None, _next(last.time_s, start, rate)
        if before is None and last.time_s >= due:
            before = last.time_s, _grey(last.frame)
    if sums is None and before is not None and last is not None and last.time_s > before[0]:
        add(before, last)  # the clip is shorter than a measurement
    if sums is None:
        return Motion(0.0, 0.0, DIFFERENCES, 0)
    sums /= pairs
    return Motion(float(sums.mean()), float(sums.min()), DIFFERENCES, pairs)


def _grey(frame: VideoFrame) -> Array:
    """The brightness of a frame, reduced to averages of squares."""
    scale = min(1.0, _DECODED_SIDE / min(frame.width, frame.height))
    width, height = (max(2, round(side * scale)) for side in (frame.width, frame.height))
    reduced = frame.reformat(width=width, height=height, format="gray", interpolation=_interpolation())
    side = max(1, round(min(width, height) / _CELLS))
    rows, columns = height // side, width // side
    whole = reduced.to_ndarray()[: rows * side, : columns * side].astype(np.float64)
    means: Array = whole.reshape(rows, side, columns, side).mean(axis=(1, 3))
    return means


def _interpolation() -> int:
    from av.video.reformatter import Interpolation

    return int(Interpolation.AREA | Interpolation.ACCURATE_RND | Interpolation.BITEXACT)


def _distances(one: Array, two: Array, rows: int, columns: int) -> Array:
    """The distances in pixels between two frames in each patch."""
    changed = np.abs(two - one)
    changed = np.where(changed > _NOISE, changed, 0)
    across, down = np.zeros((2, *one.shape))
    across[:, 1:] = np.diff(one, axis=1)
    down[1:] = np.diff(one, axis=0)
    slopes = np.hypot(across, down)
    found = np.empty((rows, columns))
    for row, lines in enumerate(np.array_split(np.arange(one.shape[0]), rows)):
        for column, places in enumerate(np.array_split(np.arange(one.shape[1]), columns)):
            patch = (slice(lines[0], lines[-1] + 1), slice(places[0], places[-1] + 1))
            slope = max(_LEAST_SLOPE, float(slopes[patch].mean()))
            found[row, column] = float(changed[patch].mean()) / (slope * _SEEN)
    return found
