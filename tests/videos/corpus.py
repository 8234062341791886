"""Videos whose frames carry their numbers, in many formats, and damaged ones."""

from __future__ import annotations

import io
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np

WIDTH, HEIGHT = 128, 64
BITS = 8
QUIET: dict[str, dict[str, str]] = {
    "libx264": {"preset": "ultrafast"},
    "libx265": {"x265-params": "log-level=none", "preset": "ultrafast"},
    "libvpx": {"deadline": "realtime", "cpu-used": "8"},
    "libvpx-vp9": {"deadline": "realtime", "cpu-used": "8"},
    "libsvtav1": {"preset": "8", "crf": "20", "svtav1-params": "lp=1"},
}
MARK = 4
"""The rows of the frame above which there is a white mark at the top left."""


def numbered(number: int, width: int = WIDTH, height: int = HEIGHT) -> Any:
    """A frame with its number as white and black bars, and a red mark at the top left."""
    pixels = np.zeros((height, width, 3), np.uint8)
    for bit in range(BITS):
        if number >> bit & 1:
            pixels[height // 4 :, bit * width // BITS : (bit + 1) * width // BITS] = 255
    pixels[: height // 4, : width // 4, 0] = 255
    return pixels


def number_of(pixels: Any) -> int:
    """The number of a decoded frame of any size."""
    height, width = pixels.shape[:2]
    row = pixels[height * 5 // 8, :, 1]
    return sum(1 << bit for bit in range(BITS) if row[(2 * bit + 1) * width // (2 * BITS)] > 127)


def is_upright(pixels: Any) -> bool:
    """Whether the red mark is at the top left, and nowhere else."""
    height, width = pixels.shape[:2]
    red = pixels[:, :, 0].astype(int) - pixels[:, :, 1]
    places = [red[: height // 8, : width // 8], red[-height // 8 :, -width // 8 :], red[: height // 8, -width // 8 :]]
    return bool(places[0].mean() > 100 and all(place.mean() < 30 for place in places[1:]))


def video(
    frames: int = 50,
    codec: str = "libx264",
    fps: int = 25,
    container: str = "mp4",
    *,
    gop: int = 12,
    ticks: Sequence[int] | None = None,
    turned: int = 0,
    audio: str | None = None,
    size: tuple[int, int] = (WIDTH, HEIGHT),
    options: dict[str, str] | None = None,
    muxer: dict[str, str] | None = None,
) -> bytes:
    """The bytes of a video of numbered frames.

    ``ticks``: the times of frames, in milliseconds. ``turned``: frames are stored turned clockwise by so many degrees,
    and the file has that mark.
    """
    file = io.BytesIO()
    with av.open(file, "w", format=container, container_options=muxer or {}) as out:
        stream: Any = out.add_stream(codec, rate=fps)
        stream.pix_fmt = "yuv420p"
        stored = size[::-1] if turned % 180 else size
        stream.width, stream.height = stored
        stream.codec_context.gop_size = gop
        stream.codec_context.thread_count = 1
        stream.options = {**QUIET.get(codec, {}), **(options or {})}
        if ticks is not None:
            stream.codec_context.time_base = Fraction(1, 1000)
        if turned:
            stream.set_display_rotation(turned)
        sound: Any = None if audio is None else out.add_stream(audio, rate=48_000, layout="mono")
        for number in range(frames):
            pixels = np.ascontiguousarray(np.rot90(numbered(number, *size), -turned // 90))
            frame = av.VideoFrame.from_ndarray(pixels, "rgb24")
            frame.pts, frame.time_base = number, Fraction(1, fps)
            if ticks is not None:
                frame.pts, frame.time_base = ticks[number], Fraction(1, 1000)
            out.mux(stream.encode(frame))
        out.mux(stream.encode())
        for start in range(0, frames * 48_000 // fps if sound else 0, 960):
            wave = np.sin(np.arange(start, start + 960) * 0.05).astype(np.float32)[None]
            if audio == "pcm_s16le":
                wave_frame = av.AudioFrame.from_ndarray((wave * 30_000).astype(np.int16), "s16", "mono")
            else:
                wave_frame = av.AudioFrame.from_ndarray(wave, "fltp" if audio == "aac" else "flt", "mono")
            wave_frame.sample_rate, wave_frame.pts, wave_frame.time_base = 48_000, start, Fraction(1, 48_000)
            out.mux(sound.encode(wave_frame))
        if sound:
            out.mux(sound.encode())
    return file.getvalue()


def sound_only() -> bytes:
    """An MP4 file with sound and nothing else."""
    file = io.BytesIO()
    with av.open(file, "w", format="mp4") as out:
        stream: Any = out.add_stream("aac", rate=48_000, layout="mono")
        for start in range(0, 48_000, 1024):
            frame = av.AudioFrame.from_ndarray(np.zeros((1, 1024), np.float32), "fltp", "mono")
            frame.sample_rate, frame.pts, frame.time_base = 48_000, start, Fraction(1, 48_000)
            out.mux(stream.encode(frame))
        out.mux(stream.encode())
    return file.getvalue()


def without_samples() -> bytes:
    """An MP4 file with a video stream of no frames."""
    file = io.BytesIO()
    with av.open(file, "w", format="mp4", container_options={"movflags": "empty_moov+frag_keyframe"}) as out:
        stream: Any = out.add_stream("libx264", rate=25, options=QUIET["libx264"])
        stream.width, stream.height, stream.pix_fmt = WIDTH, HEIGHT, "yuv420p"
        out.start_encoding()
    return file.getvalue()


def huge(side: int = 16_383) -> bytes:
    """A VP8 video whose headers declare frames of this width and height, with the data of a small one."""
    data = bytearray(video(1, "libvpx", 25, "ivf"))
    size = side.to_bytes(2, "little") * 2
    data[12:16] = size
    place = data.index(b"\x9d\x01\x2a") + 3
    data[place : place + 4] = size
    return bytes(data)


def damaged(data: bytes, share: float = 0.6) -> bytes:
    """An MP4 file with noise in the middle of its frames."""
    begin = data.index(b"mdat") + 4
    end = data.index(b"moov", begin) - 4
    place = begin + int((end - begin) * share)
    noise = np.random.default_rng(0).integers(0, 256, min(400, end - place), dtype=np.uint8).tobytes()
    return data[:place] + noise + data[place + len(noise) :]


def indexed_first(data: bytes) -> bytes:
    """An MP4 file with its index before its frames, copied packet by packet."""
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "a.mp4")
        with av.open(io.BytesIO(data)) as source, av.open(str(path), "w", options={"movflags": "faststart"}) as out:
            stream = source.streams.video[0]
            made = out.add_stream_from_template(stream)
            for packet in source.demux(stream):
                if packet.size:
                    packet.stream = made
                    out.mux_one(packet)
        return path.read_bytes()
