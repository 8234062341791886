"""Small clips that are made on the fly."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import av
import numpy as np
import pyarrow as pa
from PIL import Image

from gristmill.tasks.document import ID
from gristmill.tasks.video import CLIP, CLIP_ID, END, START, VIDEO, VIDEO_ID, VideoTask

WIDTH, HEIGHT = 160, 90
_QUIET = {"libx265": {"x265-params": "log-level=none", "preset": "ultrafast"}}


def texture(seed: int, width: int = 2 * WIDTH, height: int = 2 * HEIGHT, grain: int = 10) -> Any:
    """A picture of soft coloured blobs: uint8, (height, width, 3)."""
    random = np.random.default_rng(seed)
    small = random.integers(0, 256, (height // grain + 3, width // grain + 3, 3), dtype=np.uint8)
    return np.asarray(Image.fromarray(small).resize((width, height), Image.Resampling.BICUBIC))


def panned(
    seed: int, frames: int = 30, speed: float = 2.0, width: int = WIDTH, height: int = HEIGHT, grain: int = 10
) -> Iterator[Any]:
    """Frames of a camera that moves to the right over a texture, by ``speed`` pixels for each frame."""
    wide = texture(seed, width + int(frames * abs(speed)) + 1, height, grain)
    for number in range(frames):
        begin = int(number * speed)
        yield np.ascontiguousarray(wide[:, begin : begin + width])


def still(seed: int, frames: int = 30, width: int = WIDTH, height: int = HEIGHT) -> Iterator[Any]:
    """Frames that are all the same."""
    yield from panned(seed, frames, 0.0, width, height)


def blank(value: int = 0, frames: int = 30, width: int = WIDTH, height: int = HEIGHT) -> Iterator[Any]:
    """Frames of one colour."""
    for _ in range(frames):
        yield np.full((height, width, 3), value, np.uint8)


def with_bars(frames: Iterable[Any], size: int) -> Iterator[Any]:
    """Frames with black rows over the top and the bottom."""
    for frame in frames:
        changed = frame.copy()
        changed[:size] = changed[len(changed) - size :] = 0
        yield changed


def encoded(
    frames: Iterable[Any],
    codec: str = "libx264",
    fps: int = 30,
    container: str = "mp4",
    options: dict[str, str] | None = None,
) -> bytes:
    """The bytes of a clip."""
    file = io.BytesIO()
    with av.open(file, "w", format=container) as output:
        stream: Any = None
        for pixels in frames:
            if stream is None:
                stream = output.add_stream(codec, rate=fps)
                stream.height, stream.width = pixels.shape[:2]
                stream.pix_fmt = "yuv420p"
                stream.codec_context.thread_count = 1
                stream.options = {**_QUIET.get(codec, {}), **(options or {})}
            output.mux(stream.encode(av.VideoFrame.from_ndarray(pixels, format="rgb24")))
        output.mux(stream.encode())
    return file.getvalue()


def batch(clips: Sequence[bytes | None], lengths: Sequence[float] | None = None, **columns: Any) -> VideoTask:
    """Clips with ids. ``columns`` are further ones."""
    names = [f"{number:04}" for number in range(len(clips))]
    table: dict[str, Any] = {
        VIDEO: pa.array(["film.mp4"] * len(clips), pa.large_string()),
        VIDEO_ID: pa.array(["film.mp4"] * len(clips), pa.large_string()),
        CLIP_ID: pa.array([f"film.mp4-{name}" for name in names], pa.large_string()),
        START: pa.array([0.0] * len(clips), pa.float64()),
        END: pa.array(lengths or [1.0] * len(clips), pa.float64()),
        CLIP: pa.array(clips, pa.large_binary()),
        ID: pa.array([f"film.mp4#{number}" for number in range(len(clips))], pa.large_string()),
    }
    return VideoTask(data=pa.table({**table, **columns}), task_id="0")
