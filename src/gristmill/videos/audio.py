"""The sound of clips: its packets copied, or encoded as AAC where an MP4 file cannot hold them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from gristmill.videos.source import Location, open_video
from gristmill.videos.stream import RawFrame

if TYPE_CHECKING:
    from av import Packet
    from av.audio.stream import AudioStream
    from av.container import InputContainer, OutputContainer

COPIED = ("aac", "mp3", "ac3", "eac3", "opus", "alac")
"""Sound that MP4 files hold. Other sound becomes AAC."""


class Sound:
    """The first audio stream of a video, from the start of a clip on. Damaged packets of it are left out."""

    def __init__(self, container: InputContainer, stream: AudioStream) -> None:
        self._container, self._stream = container, stream
        self._waiting: Packet[Any] | None = None

    @classmethod
    def opened(cls, stack: ExitStack, location: Location, options: Mapping[str, Any] | None) -> Sound | None:
        """The sound of a video. None if it has none that can be decoded."""
        container = stack.enter_context(open_video(location, options))
        stream = next((one for one in container.streams.audio if one.codec_context is not None), None)
        return None if stream is None else cls(container, stream)

    def begin(self, out: OutputContainer, first: RawFrame, end_s: float | None) -> None:
        """Add a stream to a file. The sound begins with a frame, and ends at ``end_s`` of the video."""
        import av.error

        self._out = out
        self._start = Fraction(0) if first.frame.pts is None else first.frame.pts * (first.frame.time_base or 0)
        self._stop = None if end_s is None else self._start + Fraction(end_s - first.time_s).limit_denominator(90_000)
        self._is_copied = self._stream.codec_context.name in COPIED
        rate = self._stream.codec_context.sample_rate
        self._base = Fraction(1, rate or 48_000)
        if self._is_copied:
            self._made: Any = out.add_stream_from_template(self._stream)
        else:
            self._made = out.add_stream("aac", rate=rate, layout=self._stream.codec_context.layout.name)
        if self._start > 1:
            try:
                self._container.seek(int(self._start / self._tick()), stream=self._stream)
            except av.error.FFmpegError:  # it is read from its start on
                pass
        self._packets = self._in_time()

    def write_until(self, seconds: float | None) -> None:
        """Write the sound up to a time from the start of the clip; None: all of it."""
        limit = None if seconds is None else self._start + Fraction(seconds)
        while True:
            packet = self._waiting or next(self._packets, None)
            self._waiting = None
            if packet is None:
                break
            if limit is not None and self._time(packet) > limit:
                self._waiting = packet
                return
            self._write(packet)
        if limit is None and not self._is_copied:
            self._out.mux(self._made.encode())

    def _tick(self) -> Fraction:
        return self._stream.time_base or self._base

    def _time(self, packet: Packet[Any]) -> Fraction:
        return Fraction(packet.pts or 0) * self._tick()

    def _in_time(self) -> Iterator[Packet[Any]]:
        """The packets that begin in the clip."""
        import av.error

        packets = iter(self._container.demux(self._stream))
        while True:
            try:
                packet = next(packets, None)
            except av.error.FFmpegError:
                return
            if packet is None:
                return
            if packet.pts is None or packet.size == 0:
                continue
            time = self._time(packet)
            if self._stop is not None and time >= self._stop:
                return
            if time >= self._start:
                yield packet

    def _write(self, packet: Packet[Any]) -> None:
        import av.error

        shift = round(self._start / self._tick())
        if self._is_copied:
            assert packet.pts is not None
            packet.pts -= shift
            packet.dts = packet.pts
            packet.stream = self._made
            self._out.mux_one(packet)
            return
        try:
            found = packet.decode()
        except av.error.FFmpegError:
            return
        for frame in found:
            if frame.pts is not None:
                frame.pts -= shift
            self._out.mux(self._made.encode(frame))
