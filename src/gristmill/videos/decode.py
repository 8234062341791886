"""Frames of a video as pixels: of a range of time, all of them, at a rate, or those shown at given times."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Unpack

from gristmill.lazy import Array, np
from gristmill.videos.source import Location
from gristmill.videos.stream import RawFrame, Reading, microseconds, raw_frames

if TYPE_CHECKING:
    from av import VideoFrame

RESIZES = ("bilinear", "bicubic", "area", "lanczos", "nearest")
"""The ways to resize frames."""


class FramesReading(Reading, total=False):
    """How a video is read to decode frames."""

    options: Mapping[str, Any] | None
    """Those of the storage of a URL."""


@dataclass(frozen=True, slots=True)
class Frame:
    """A decoded frame."""

    index: int
    """Its number among the frames of this call, from 0."""
    time_s: float
    """When it begins, in seconds from the first frame of the video."""
    pixels: Array
    """uint8, (height, width, 3), RGB, upright."""


def frames(
    location: Location,
    start_s: float = 0.0,
    end_s: float | None = None,
    *,
    rate: float | None = None,
    times: Sequence[float] | None = None,
    size: tuple[int, int] | None = None,
    resize: str = "bilinear",
    **reading: Unpack[FramesReading],
) -> Iterator[Frame]:
    """Yield frames of a video or of an encoded clip, one at a time.

    Without ``rate`` and ``times`` these are all frames that begin from ``start_s`` on and before ``end_s``. With
    ``rate`` they are the frames shown at ``start_s``, ``start_s + 1/rate`` and so on; a frame that is shown for longer
    comes again. With ``times``, which must not decrease, they are the frames shown then; after the end of the video
    it is the last one. All times are seconds from the first frame of the video.

    ``size`` is (height, width), upright. All frames have one size, also if that of the video changes. Damage raises
    `BadVideo` after the frames before it; with ``tolerant`` damaged frames are skipped. The pixels are the same for
    any number of ``threads``. A file that does not have the given ``file_size`` raises: it is another one.
    """
    if rate is not None and times is not None:
        raise ValueError("rate and times exclude each other.")
    if resize not in RESIZES:
        raise ValueError(f"resize must be one of {', '.join(RESIZES)}, not {resize!r}.")
    if rate is not None and not rate > 0:
        raise ValueError(f"rate must be above 0, not {rate!r}.")
    if times is not None:
        times = list(times)
        if any(later < earlier for earlier, later in pairwise(times)):
            raise ValueError("times must not decrease.")
        if not times:
            return
        start_s = max(0.0, times[0])
    is_sampled = rate is not None or times is not None
    stop = end_s if times is None else None
    found = raw_frames(location, start_s, stop, from_shown=is_sampled, **reading)
    if times is not None:
        found = _shown_at(found, times)
    elif rate is not None:
        found = _at_rate(found, start_s, end_s, rate)
    converter = Pixels(size, resize)
    previous: tuple[VideoFrame, Array] | None = None
    for index, one in enumerate(found):
        if previous is None or previous[0] is not one.frame:
            previous = (one.frame, converter.of(one.frame))
        yield Frame(index, one.time_s, previous[1])


_TOLERANCE = 100
"""Microseconds by which a frame may begin after the time at which it counts as shown: times are rounded."""


def _shown_at(found: Iterator[RawFrame], times: Sequence[float]) -> Iterator[RawFrame]:
    shown = next(found, None)
    if shown is None:
        return
    following = next(found, None)
    for time in times:
        at = microseconds(time) + _TOLERANCE
        while following is not None and microseconds(following.time_s) <= at:
            shown, following = following, next(found, None)
        yield shown


def _at_rate(found: Iterator[RawFrame], start_s: float, end_s: float | None, rate: float) -> Iterator[RawFrame]:
    count = 0

    def due() -> int:
        return microseconds(start_s + count / rate)

    stop = None if end_s is None else microseconds(end_s)
    shown: RawFrame | None = None
    for one in found:
        if shown is not None:
            while due() + _TOLERANCE < microseconds(one.time_s):
                yield shown
                count += 1
        shown = one
    if shown is None:
        return
    until = microseconds(shown.time_s + length_s(shown.frame))
    if stop is not None:
        until = min(until, stop)
    while due() + _TOLERANCE < until:
        yield shown
        count += 1


def length_s(frame: VideoFrame) -> float:
    """How long a frame is shown, as far as it says; else 40 ms."""
    if frame.duration and frame.time_base:
        return float(frame.duration * frame.time_base)
    return 0.04


class Pixels:
    """Makes upright RGB pixels of decoded frames, all of one size."""

    def __init__(self, size: tuple[int, int] | None = None, resize: str = "bilinear") -> None:
        from av.video.reformatter import Interpolation, VideoReformatter

        kinds = {
            "bilinear": Interpolation.BILINEAR,
            "bicubic": Interpolation.BICUBIC,
            "area": Interpolation.AREA,
            "lanczos": Interpolation.LANCZOS,
            "nearest": Interpolation.POINT,
        }
        self._how = int(kinds[resize] | Interpolation.ACCURATE_RND | Interpolation.BITEXACT)
        self._size = size
        self._reformatter = VideoReformatter()
        self._turn: Orientation | None = None

    def of(self, frame: VideoFrame) -> Array:
        """The pixels of a frame: uint8, (height, width, 3), RGB, upright."""
        if self._turn is None:
            self._turn = orientation(frame)
        turn = self._turn
        if self._size is None:
            self._size = (frame.width, frame.height) if turn.swaps else (frame.height, frame.width)
        height, width = reversed(self._size) if turn.swaps else self._size
        small = self._reformatter.reformat(
            frame, width=width, height=height, format="rgb24", interpolation=self._how, threads=1
        )
        return turn.applied(small.to_ndarray())


@dataclass(frozen=True, slots=True)
class Orientation:
    """How a stored frame becomes upright: turned counterclockwise by ``quarters`` of a circle, after a flip."""

    quarters: int = 0
    is_mirrored: bool = False

    @property
    def swaps(self) -> bool:
        """Whether width and height change places."""
        return self.quarters % 2 == 1

    def applied(self, pixels: Array) -> Array:
        """The pixels, upright."""
        if self.is_mirrored:
            pixels = pixels[:, ::-1]
        return np.ascontiguousarray(np.rot90(pixels, self.quarters))


def orientation(frame: VideoFrame) -> Orientation:
    """The orientation that a frame's display matrix asks for. Other angles than quarters of a circle are ignored.

    It is the same for all frames of a stream. Call it for one of them: PyAV's side data and their frame refer to each
    other, so the memory of the frame is not freed before the garbage collector finds them.
    """
    from av.sidedata.sidedata import Type

    data: Any = frame.side_data  # PyAV's own type of it is that of a dict
    for one in data:
        if one.type is Type.DISPLAYMATRIX:
            return of_matrix(np.frombuffer(bytes(one), np.int32).tolist())
    return Orientation()


def of_matrix(matrix: Sequence[int]) -> Orientation:
    """The orientation of a display matrix of nine numbers, of which (0, 1, 3, 4) turn and mirror."""
    if len(matrix) != 9:
        return Orientation()
    a, b, c, d = (matrix[place] for place in (0, 1, 3, 4))
    is_mirrored = a * d - b * c < 0
    if is_mirrored:  # a flip from left to right before the turn
        a, b = -a, -b
    if abs(a) >= abs(b):
        return Orientation(0 if a >= 0 else 2, is_mirrored)
    # positive b turns clockwise: a point on the right of the stored frame is shown at the bottom
    return Orientation(3 if b > 0 else 1, is_mirrored)
