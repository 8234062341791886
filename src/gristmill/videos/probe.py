"""What the container of a video says, and whether the first frame can be decoded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from itertools import islice
from typing import TYPE_CHECKING, Any

from gristmill.videos.errors import BadVideo
from gristmill.videos.source import MAX_PIXELS, Location, as_bad_video, open_video, opened_bytes, size_of
from gristmill.videos.stream import free_side_data, video_stream

if TYPE_CHECKING:
    from av import VideoFrame
    from av.container import InputContainer
    from av.video.stream import VideoStream

MOST_PACKETS = 500
"""Packets that are tried for the first frame."""
LONGEST_S = 30 * 24 * 3600
"""A longer duration is not believed: the packets are read. A damaged number would become billions of clips."""


@dataclass(frozen=True, slots=True)
class VideoInfo:
    """What is known of a video without decoding more than one frame."""

    width: int
    """Pixels of a frame as it is shown: upright."""
    height: int
    rotation: int
    """By how many degrees a stored frame is turned clockwise to be upright: 0, 90, 180 or 270."""
    fps: float
    """Frames per second, on average."""
    frames: int
    """The number of frames: as the container says, or else duration by rate."""
    duration_s: float
    """From the first frame to the end of the last."""
    video_codec: str
    pixel_format: str
    audio_codec: str | None
    """None without sound."""
    video_bytes: int
    """The size of the file."""
    is_variable_rate: bool
    """Whether frames are shown for different times, as far as the container tells."""
    bit_rate: int
    """Bits per second of the video stream, or of the file where only that is known."""
    container: str
    """The format of the file, as FFmpeg names it: such as "mp4" or "matroska"."""


def probe(location: Location, options: Mapping[str, Any] | None = None, *, max_pixels: int = MAX_PIXELS) -> VideoInfo:
    """Return what is known of a video. Raise `BadVideo` with a reason if it cannot be used.

    Reasons: "empty", "not a video of a known format", "truncated", "no video stream", "no frames", "too many pixels",
    "asks for too much memory", "encrypted", "a codec that cannot be decoded", "damaged", and why a file cannot be read.
    """
    with opened_bytes(location, options) as file:
        size = size_of(file)
        if not size:
            raise BadVideo("empty")
        start = file.read(1 << 12)
    try:
        with open_video(location, options, max_pixels=max_pixels) as container:
            return _info(container, size, max_pixels)
    except BadVideo as error:
        if error.reason == "damaged":
            raise _closer(location, options, start, size) from None
        raise
    finally:
        free_side_data()


def _info(container: InputContainer, size: int, max_pixels: int) -> VideoInfo:
    stream = video_stream(container)
    context = stream.codec_context
    if context is None:
        raise BadVideo("a codec that cannot be decoded")
    if context.width * context.height > max_pixels:
        raise BadVideo("too many pixels")
    context.options = {"max_pixels": str(max_pixels)}
    context.thread_count = 1
    frame = _first_frame(container, stream)
    from gristmill.videos.decode import orientation

    turn = orientation(frame)
    width, height = (frame.height, frame.width) if turn.swaps else (frame.width, frame.height)
    if frame.width * frame.height > max_pixels:
        raise BadVideo("too many pixels")
    fps = float(stream.average_rate or stream.guessed_rate or 0)
    duration = _duration_s(container, stream)
    count = stream.frames or (len(stream.index_entries) if _name(container) == "mp4" else 0)
    count = count or max(1, round(duration * fps))
    if duration > LONGEST_S or (count == 1 and not stream.frames):  # nothing tells it, or what does is not right
        count, duration = _measured(container, stream, frame, fps)
    if duration > LONGEST_S:
        raise BadVideo("damaged")
    fps = fps or (count / duration if duration else 0.0)
    duration = duration or (count / fps if fps else 0.0)
    audio = next(iter(container.streams.audio), None)
    return VideoInfo(
        width,
        height,
        -turn.quarters * 90 % 360,
        round(fps, 6),
        count,
        round(duration, 6),
        context.codec.canonical_name,
        str(frame.format.name),
        None if audio is None or audio.codec_context is None else audio.codec_context.codec.canonical_name,
        size,
        _varies(stream),
        int(stream.bit_rate or container.bit_rate or 0),
        _name(container),
    )


def _first_frame(container: InputContainer, stream: VideoStream) -> VideoFrame:
    import av.error

    is_damaged = False
    for packet in islice(container.demux(stream), MOST_PACKETS):
        if packet.has_sidedata("encryption_info") or packet.has_sidedata("encryption_init_info"):
            raise BadVideo("encrypted")
        try:
            for frame in packet.decode():
                return frame
        except av.error.InvalidDataError:
            is_damaged = True
    raise BadVideo("damaged" if is_damaged else "no frames")


def _duration_s(container: InputContainer, stream: VideoStream) -> float:
    if stream.duration and stream.time_base:
        return float(stream.duration * stream.time_base)
    return max(0.0, (container.duration or 0) / 1_000_000)


def _measured(container: InputContainer, stream: VideoStream, first: VideoFrame, fps: float) -> tuple[int, float]:
    """The number of frames and the seconds that they take, by reading all packets after the first frame."""
    import av.error

    count, start, end = 1, first.pts, first.pts
    packets = iter(container.demux(stream))
    while True:
        try:
            packet = next(packets, None)
        except av.error.FFmpegError:
            break
        if packet is None:
            break
        if packet.size:
            count += 1
            if packet.pts is not None and end is not None:
                end = max(end, packet.pts)
    if start is None or end is None or end == start or not stream.time_base:
        return count, count / fps if fps else 0.0
    length = float((end - start) * stream.time_base)
    return count, length + length / max(1, count - 1)


def _name(container: InputContainer) -> str:
    names = container.format.name.split(",")
    return "mp4" if "mp4" in names else names[0]


def _varies(stream: VideoStream) -> bool:
    """Whether the average rate of frames differs from the smallest rate that has all their times."""
    average, base = stream.average_rate, stream.base_rate
    if not average or not base:
        return False
    return abs(Fraction(average) / Fraction(base) - 1) > Fraction(1, 100)


def _closer(location: Location, options: Mapping[str, Any] | None, start: bytes, size: int) -> BadVideo:
    """Why a file cannot be opened, by its first bytes."""
    if start[4:8] not in (b"ftyp", b"moov", b"mdat", b"free", b"skip", b"wide", b"styp"):
        known = start.startswith((b"\x1aE\xdf\xa3", b"RIFF", b"FLV", b"OggS", b"\x00\x00\x01\xba", b"G"))
        return BadVideo("damaged" if known else "not a video of a known format")
    has_index = False
    with as_bad_video(location), opened_bytes(location, options) as file:
        place = 0
        while place + 8 <= size:
            file.seek(place)
            head = file.read(16)
            length, kind = int.from_bytes(head[:4], "big"), head[4:8]
            if length == 1 and len(head) == 16:
                length = int.from_bytes(head[8:], "big")
            if length == 0:
                length = size - place
            if length < 8:
                return BadVideo("damaged")
            has_index = has_index or (kind == b"moov" and place + length <= size)
            if place + length > size:
                return BadVideo("truncated")
            place += length
    return BadVideo("damaged" if has_index else "truncated")
