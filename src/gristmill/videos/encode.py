"""Clips of a video as bytes: its packets copied, or its frames encoded again."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from typing import TYPE_CHECKING, Any, cast

from gristmill.lazy import Array, np
from gristmill.videos.audio import Sound
from gristmill.videos.decode import Orientation, length_s, orientation
from gristmill.videos.errors import BadVideo
from gristmill.videos.source import MAX_PIXELS, Location
from gristmill.videos.stream import RawFrame, raw_frames

if TYPE_CHECKING:
    from av import Packet, VideoFrame
    from av.container import OutputContainer
    from av.video.stream import VideoStream

ENCODERS = ("libx264", "libvpx-vp9", "h264_nvenc")
"""The encoders that are offered. The last one needs a GPU."""
TIME_BASE = Fraction(1, 90_000)
BITEXACT = {"fflags": "+bitexact"}
"""Keeps versions and times out of files."""
MOST_BYTES = 1 << 30
"""A clip with more encoded bytes is refused."""


@dataclass(frozen=True, slots=True)
class Encoding:
    """How clips are encoded."""

    encoder: str = "libx264"
    crf: float | None = None
    """The quality: lower is better. By default 23 for libx264 and 32 for libvpx-vp9."""
    bit_rate: int | None = None
    """Bits per second instead of a quality."""
    preset: str = "fast"
    """A preset of libx264 and h264_nvenc; for libvpx-vp9 a number for ``cpu-used``, by default 4."""
    has_audio: bool = False
    """Whether clips have the sound of the video."""
    threads: int = 1
    """Threads of the encoder. The bytes of a clip depend on this number, and on nothing else of the machine."""

    def __post_init__(self) -> None:
        if self.encoder not in ENCODERS:
            raise ValueError(f"encoder must be one of {', '.join(ENCODERS)}, not {self.encoder!r}.")
        if self.threads < 1:
            raise ValueError(f"threads must be at least 1, not {self.threads!r}.")

    def options(self) -> dict[str, str]:
        """The options of the encoder."""
        given: dict[str, str] = {}
        if self.encoder == "libx264":
            given = {"preset": self.preset}
            if self.bit_rate is None:
                given["crf"] = str(23 if self.crf is None else self.crf)
            if level := _repeatable_instructions():
                given["x264-params"] = f"asm={level}"
        elif self.encoder == "libvpx-vp9":
            given = {"cpu-used": self.preset if self.preset.isdigit() else "4", "row-mt": "0"}
            if self.bit_rate is None:
                given |= {"crf": str(32 if self.crf is None else self.crf), "b": "0"}
        elif self.bit_rate is None:
            given = {"rc": "constqp", "qp": str(23 if self.crf is None else round(self.crf))}
        return given


@cache
def _repeatable_instructions() -> str:
    """The instructions of the CPU with which libx264 gives the same bytes each time, on CPUs with and without AVX-512.

    With AVX-512 its weights of macroblocks vary from one run to the next. AVX2 and SSE 4.2 give the same bytes. Empty
    for other CPUs and systems, where it chooses.
    """
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
            flags = next((line.partition(":")[2].split() for line in file if line.startswith("flags")), [])
    except OSError:
        return ""
    return "avx2" if "avx2" in flags else "sse4.2" if "sse4_2" in flags else ""


def transcode(
    location: Location,
    start_s: float = 0.0,
    end_s: float | None = None,
    encoding: Encoding | None = None,
    *,
    options: Mapping[str, Any] | None = None,
    size: int | None = None,
    max_pixels: int = MAX_PIXELS,
) -> bytes:
    """Return an MP4 file with the frames that begin from ``start_s`` on and before ``end_s``, encoded again.

    Frames are upright, and have their times: a variable rate stays one. Damage raises `BadVideo`, and so does a range
    without frames. The same arguments give the same bytes. A file that does not have the given ``size`` raises: it is
    another one.
    """
    how = encoding or Encoding()
    found = raw_frames(location, start_s, end_s, options, file_size=size, max_pixels=max_pixels)
    with ExitStack() as stack:
        sound = Sound.opened(stack, location, options) if how.has_audio else None
        return _encoded(found, how, end_s, sound)


def can_encode(encoding: Encoding) -> bool:
    """Return whether the encoder works on this machine."""
    try:
        return bool(encode_pixels([np.zeros((256, 256, 3), np.uint8)], 25.0, encoding))
    except BadVideo:
        return False


def encode_pixels(images: Iterable[Array], rate: float, encoding: Encoding | None = None) -> bytes:
    """Return an MP4 file of frames that are shown at a constant rate. Frames are uint8, (height, width, 3), RGB."""
    return _encoded(_of_pixels(images, rate), encoding or Encoding(), None, None)


def _of_pixels(images: Iterable[Array], rate: float) -> Iterator[RawFrame]:
    from av import VideoFrame

    for number, image in enumerate(images):
        frame = VideoFrame.from_ndarray(np.ascontiguousarray(image), "rgb24")
        frame.time_base, frame.duration = TIME_BASE, round(TIME_BASE.denominator / rate)
        yield RawFrame(number / rate, frame)


def _encoded(found: Iterator[RawFrame], how: Encoding, end_s: float | None, sound: Sound | None) -> bytes:
    import av.error

    try:
        return _file_of(found, how, end_s, sound)
    except av.error.FFmpegError:  # those of decoding are reported as such
        raise BadVideo("cannot be encoded") from None


def _file_of(found: Iterator[RawFrame], how: Encoding, end_s: float | None, sound: Sound | None) -> bytes:
    import av

    first = next(found, None)
    if first is None:
        raise BadVideo("no frames in the time of the clip")
    memory = _Memory()
    with av.open(memory, "w", format="mp4", container_options=BITEXACT) as out:
        writer = _ClipEncoder(out, first, how)
        if sound is not None:
            sound.begin(out, first, end_s)
        shown = first
        for one in found:
            writer.write(shown, one.time_s)
            if sound is not None:
                sound.write_until(one.time_s - first.time_s)
            shown = one
        writer.write(shown, shown.time_s + length_s(shown.frame))
        writer.end()
        if sound is not None:
            sound.write_until(None)
    return memory.getvalue()


class _Memory(io.BytesIO):
    """A file in memory, of limited size."""

    def write(self, data: Any) -> int:
        if self.tell() + len(data) > MOST_BYTES:
            raise BadVideo("the clip has too many bytes")
        return super().write(data)


class _ClipEncoder:
    """Encodes frames into a file."""

    def __init__(self, out: OutputContainer, first: RawFrame, how: Encoding) -> None:
        from av.codec.context import Flags
        from av.video.reformatter import Interpolation, VideoReformatter

        self._out = out
        self._origin = first.time_s
        self._last = -1
        self._stop = self._begin = 0
        self._waiting: Packet[VideoStream] | None = None
        self._turn: Orientation = orientation(first.frame)
        width, height = first.frame.width, first.frame.height
        self._inner = (max(2, width - width % 2), max(2, height - height % 2))
        rate = Fraction(1 / length_s(first.frame)).limit_denominator(1001)
        stream = cast("VideoStream", out.add_stream(how.encoder, rate=rate, options=how.options()))
        context = stream.codec_context
        stream.width, stream.height = reversed(self._inner) if self._turn.swaps else self._inner
        stream.pix_fmt = "yuv420p"
        context.time_base = TIME_BASE
        context.thread_count = how.threads
        context.flags |= Flags.bitexact
        if how.bit_rate is not None:
            context.bit_rate = how.bit_rate
        context.colorspace = first.frame.colorspace
        context.color_primaries = first.frame.color_primaries
        context.color_trc = first.frame.color_trc
        self._stream = stream
        self._how = int(Interpolation.BICUBIC | Interpolation.ACCURATE_RND | Interpolation.BITEXACT)
        self._reformatter = VideoReformatter()

    def write(self, one: RawFrame, until_s: float) -> None:
        """Encode a frame that is shown until a time."""
        width, height = self._inner
        frame = self._reformatter.reformat(
            one.frame, width=width, height=height, format="yuv420p", interpolation=self._how, threads=1
        )
        if self._turn != Orientation():
            frame = _turned(frame, self._turn)
        ticks = round((one.time_s - self._origin) * TIME_BASE.denominator)
        self._last = max(ticks, self._last + 1)
        frame.pts, frame.time_base = self._last, TIME_BASE
        self._stop = max(self._last + 1, round((until_s - self._origin) * TIME_BASE.denominator))
        frame.pict_type = 0
        self._mux(self._stream.encode(frame))

    def end(self) -> None:
        """Encode what the encoder still holds."""
        self._mux(self._stream.encode())
        if (last := self._waiting) is not None:
            # all others last until the next one, in the order of decoding
            last.duration = max(1, self._stop - ((last.dts or 0) - self._begin))
            self._out.mux_one(last)

    def _mux(self, packets: list[Packet[VideoStream]]) -> None:
        for packet in packets:
            if self._waiting is not None:
                self._out.mux_one(self._waiting)
            elif packet.dts is not None:
                self._begin = packet.dts
            self._waiting = packet


def _turned(frame: VideoFrame, turn: Orientation) -> VideoFrame:
    """A yuv420p frame, turned and mirrored plane by plane."""
    from av import VideoFrame

    whole: Array = frame.to_ndarray()
    width, height = frame.width, frame.height
    cut = height * width
    flat = whole.reshape(-1)
    small = (height // 2, width // 2)
    planes = [flat[:cut].reshape(height, width)]
    planes += [part.reshape(small) for part in np.split(flat[cut:], 2)]
    flat = np.concatenate([turn.applied(plane).reshape(-1) for plane in planes])
    width = height if turn.swaps else width
    made = VideoFrame.from_ndarray(flat.reshape(-1, width), "yuv420p")
    made.colorspace, made.color_range = frame.colorspace, frame.color_range
    return made
