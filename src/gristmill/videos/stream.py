"""The frames of a video stream as the decoder gives them, with times from the first frame."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

from gristmill.videos.errors import BadVideo
from gristmill.videos.source import MAX_PIXELS, Location, as_bad_video, open_video

if TYPE_CHECKING:
    from av import Packet, VideoFrame
    from av.container import InputContainer
    from av.video.stream import VideoStream

MOST_BAD_PACKETS = 64
"""After so many packets in a row that give no frame, the rest of a tolerated video is not tried."""
_LINEAR_S = 2.0
"""A start before this time is reached by decoding from the first frame, without a seek."""
FRAMES_LEFT = 2
"""Frames that a caller may still use when a video is closed: the first, and the last."""
MOST_LEFT_BYTES = 48 << 20
FRAMES_AT_ONCE = 16
"""After so many frames with motion vectors their memory is freed."""
STEPS_BACK_S = (0.0, 1.0, 5.0, 30.0)
"""How much earlier to seek if a seek ends after the key frame that is needed."""
_NOT_SOUGHT = ("mpeg", "mpegvideo")
"""Formats in which only some frames have times: after a seek they would have other ones."""


@dataclass(frozen=True, slots=True)
class RawFrame:
    """A frame as the decoder gives it: not upright, in the pixel format of the video."""

    time_s: float
    """Seconds from the first frame of the video."""
    frame: VideoFrame


class Reading(TypedDict, total=False):
    """How a video is read."""

    tolerant: bool
    """Skip damaged frames. Only a video without any frame raises then."""
    threads: int
    """Threads of the decoder, 1 by default. The pixels do not depend on them."""
    max_pixels: int
    """Larger frames are refused."""
    file_size: int | None
    """The size that the file has if it is the one that was meant."""


def microseconds(seconds: float) -> int:
    """A time as a whole number, to compare times without errors of rounding."""
    return round(seconds * 1_000_000)


def free_side_data() -> None:
    """Free frames whose side data was read.

    PyAV's side data and their frame refer to each other. A frame takes megabytes, of which Python's collector knows
    nothing, so it would run too late.
    """
    gc.collect(1)


class _Left:
    """Frames that were still in use when their video was closed: `free_side_data` misses them from then on.

    They are counted, and all of Python's objects are looked at when they may have become many.
    """

    bytes = 0

    @classmethod
    def add(cls, size: int) -> None:
        cls.bytes += size
        if cls.bytes > MOST_LEFT_BYTES:
            cls.bytes = 0
            gc.collect()


def video_stream(container: InputContainer) -> VideoStream:
    """The first video stream that is no cover picture. Raise `BadVideo` if there is none."""
    from av.stream import Disposition

    for stream in container.streams.video:
        if not stream.disposition & (Disposition.attached_pic | Disposition.timed_thumbnails):
            return stream
    raise BadVideo("no video stream")


def raw_frames(
    location: Location,
    start_s: float = 0.0,
    end_s: float | None = None,
    options: Mapping[str, Any] | None = None,
    *,
    motion_vectors: bool = False,
    from_shown: bool = False,
    **reading: Unpack[Reading],
) -> Iterator[RawFrame]:
    """Yield the frames that begin from ``start_s`` on and before ``end_s``, in order of display.

    With ``from_shown`` the frame that is shown at ``start_s`` comes first, although it began before. Damage raises
    `BadVideo` after the frames before it; with ``tolerant`` damaged frames are skipped, and only a video without any
    frame raises. ``motion_vectors`` asks the decoder for them: they are side data of frames.
    """
    with ExitStack() as stack:
        opened = _Opened(stack, location, options, motion_vectors, reading)
        stack.callback(free_side_data)
        with as_bad_video(location):
            found = _in_range(opened.frames(start_s), start_s, end_s, from_shown)
            size = 0
            try:
                for number, one in enumerate(found):
                    size = 2 * one.frame.width * one.frame.height
                    yield one
                    if motion_vectors and number % FRAMES_AT_ONCE == 0:
                        free_side_data()
            finally:
                _Left.add(FRAMES_LEFT * size)


def _in_range(found: Iterator[RawFrame], start_s: float, end_s: float | None, from_shown: bool) -> Iterator[RawFrame]:
    first = microseconds(start_s)
    last = None if end_s is None else microseconds(end_s)
    before: RawFrame | None = None
    for one in found:
        at = microseconds(one.time_s)
        if at < first:
            before = one
            continue
        if before is not None and from_shown and at > first:
            yield before
        before = None
        if last is not None and at >= last:
            return
        yield one
    if before is not None and from_shown:
        yield before


class _Opened:
    """A video that is opened to be decoded, perhaps more than once: a seek may have to begin again."""

    def __init__(
        self,
        stack: ExitStack,
        location: Location,
        options: Mapping[str, Any] | None,
        motion_vectors: bool,
        reading: Reading,
    ) -> None:
        self._inner = stack.enter_context(ExitStack())
        self._location, self._options = location, options
        if unknown := reading.keys() - Reading.__annotations__.keys():
            raise TypeError(f"a video is not read with {', '.join(sorted(unknown))}.")
        self._size = reading.get("file_size")
        self._tolerant, self._threads = reading.get("tolerant", False), reading.get("threads", 1)
        self._max_pixels = reading.get("max_pixels", MAX_PIXELS)
        self._motion_vectors = motion_vectors
        self._open()

    def _open(self) -> None:
        from av.codec.context import Flags2
        from av.stream import Discard

        self._inner.close()
        self._container = self._inner.enter_context(
            open_video(self._location, self._options, size=self._size, max_pixels=self._max_pixels)
        )
        self._stream = video_stream(self._container)
        for other in self._container.streams:
            if other.index != self._stream.index:
                other.discard = Discard.all
        context = self._stream.codec_context
        if context is None:
            raise BadVideo("a codec that cannot be decoded")
        if context.width * context.height > self._max_pixels:
            raise BadVideo("too many pixels")
        context.thread_count = self._threads
        context.options = {"max_pixels": str(self._max_pixels)}
        if self._motion_vectors:
            context.flags2 |= Flags2.export_mvs
        rate = self._stream.average_rate or self._stream.guessed_rate or Fraction(25)
        self._step_s = float(1 / rate) if rate > 0 else 0.04

    def frames(self, start_s: float) -> Iterator[RawFrame]:
        """Yield frames from the one shown at ``start_s`` or an earlier one on."""
        found = self._decoded()
        first = next(found, None)
        if first is None:
            raise BadVideo("truncated" if self._is_cut() else "no frames")
        origin = self._pts(first)
        if start_s >= _LINEAR_S and origin is not None and (soon := self._sought(start_s, origin)) is not None:
            yield from soon
            return
        if start_s >= _LINEAR_S and origin is not None:
            self._open()  # seeks have moved it
            found = self._decoded()
            first = next(found)
        yield from self._timed(first, found, origin or 0)

    def _sought(self, start_s: float, origin: int) -> Iterator[RawFrame] | None:
        """Frames after a seek to a key frame at or before a time. None if there is no such seek."""
        import av.error

        if self._container.format.name in _NOT_SOUGHT:
            return None
        base = self._base()
        for back in STEPS_BACK_S:
            target = start_s - back
            if target < _LINEAR_S:
                return None
            try:
                self._container.seek(origin + int(target / base), stream=self._stream)
                found = self._decoded()
                first = next(found, None)
            except (av.error.FFmpegError, BadVideo):
                return None
            if first is None:
                continue
            pts = self._pts(first)
            if pts is None:
                return None
            if microseconds(float((pts - origin) * base)) <= microseconds(start_s):
                return self._timed(first, found, origin)
        return None

    def _timed(self, first: VideoFrame, rest: Iterator[VideoFrame], origin: int) -> Iterator[RawFrame]:
        """Frames with times that increase, whatever the file says."""
        base = self._base()
        time = self._time(first, origin, base)
        at = 0.0 if time is None else time
        yield RawFrame(at, first)
        for frame in rest:
            time = self._time(frame, origin, base)
            if time is None or microseconds(time) <= microseconds(at):
                time = round(at + self._step_s, 6)
            at = time
            yield RawFrame(at, frame)

    def _time(self, frame: VideoFrame, origin: int, base: Fraction) -> float | None:
        pts = self._pts(frame)
        return None if pts is None else round(float((pts - origin) * base), 6)

    def _pts(self, frame: VideoFrame) -> int | None:
        return frame.pts if frame.pts is not None else frame.dts

    def _base(self) -> Fraction:
        return self._stream.time_base or Fraction(1, 1000)

    def _decoded(self) -> Iterator[VideoFrame]:
        """The frames from here to the end. Damage raises, or is skipped."""
        import av.error

        bad = 0
        packets = iter(self._container.demux(self._stream))
        while True:
            try:
                packet = next(packets, None)
                if packet is None:
                    break
                found = self._of(packet)
            except av.error.FFmpegError:
                bad += 1
                if not self._tolerant:
                    raise BadVideo("damaged") from None
                if bad > MOST_BAD_PACKETS:
                    return
                continue
            if found:
                bad = 0
            yield from found
        if not self._tolerant and self._is_cut():
            raise BadVideo("truncated")

    def _of(self, packet: Packet[VideoStream]) -> list[VideoFrame]:
        found = packet.decode()
        if any(frame.is_corrupt for frame in found) and not self._tolerant:
            raise BadVideo("damaged")
        return found

    def _is_cut(self) -> bool:
        """Whether the file ends before the data that its index names."""
        entries = self._stream.index_entries
        if not len(entries):
            return False
        last = entries[len(entries) - 1]
        size = self._container.size
        return size > 0 and last.pos is not None and last.pos + last.size > size
