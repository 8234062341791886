"""Videos and clips as people see them: their facts as words, and the pixels of a frame."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gristmill.lazy import Array
from gristmill.tasks.video import CLIP, CLIP_ID, END, START, VIDEO, VIDEO_ID
from gristmill.videos.errors import BadVideo

LONGEST_SIDE = 96
"""The longer side of a still, in pixels."""
_MOST_PIXELS = 1 << 23
"""A larger frame has no still: to decode it takes long, and much memory."""


def is_video(record: Mapping[str, Any]) -> bool:
    """Whether a record is a video or a clip."""
    return isinstance(record.get(VIDEO), str) and record.get(VIDEO_ID) is not None


def name_of(record: Mapping[str, Any]) -> str | None:
    """Return the name of a clip, else that of its video; None if it has none."""
    ident = record.get(CLIP_ID)
    ident = record.get(VIDEO_ID) if ident is None else ident
    return None if ident is None else str(ident)


def words(record: Mapping[str, Any], size: str = "") -> str:
    """Return what is known of a video or clip as text, with the size of the encoded clip as ``size``.

    >>> words({"video": "a.mp4", "width": 640, "height": 272, "start_s": 1.2, "end_s": 3.0, "video_codec": "h264"})
    'h264, 640 x 272, 1.20 s to 3.00 s'
    """
    width, height = record.get("width"), record.get("height")
    start, end, duration = record.get(START), record.get(END), record.get("duration_s")
    parts = [str(record.get("video_codec") or "")]
    parts.append(f"{width} x {height}" if width and height else "")
    if isinstance(start, int | float) and isinstance(end, int | float):
        parts.append(f"{start:.2f} s to {end:.2f} s")
    elif isinstance(duration, int | float):
        parts.append(f"{duration:.2f} s")
    return ", ".join(part for part in (*parts, size) if part)


def clip_bytes(record: Mapping[str, Any]) -> bytes | None:
    """Return the encoded clip of a record; None if it holds none."""
    data = record.get(CLIP)
    return data if isinstance(data, bytes) else None


def still(record: Mapping[str, Any]) -> Array | None:
    """Return the pixels of the frame in the middle of a clip, or of a video; None if they cannot be read.

    Frames of clips that are not in the record are read from the video, if that is a file of this machine.
    """
    from gristmill.storage import local_path
    from gristmill.videos.decode import frames
    from gristmill.videos.probe import probe

    data = clip_bytes(record)
    location = data if data is not None else record[VIDEO]
    if isinstance(location, str) and local_path(location) is None:
        return None
    try:
        known = probe(location, max_pixels=_MOST_PIXELS)
        begin, end = (0.0, known.duration_s) if data is not None else _range(record, known.duration_s)
        scale = min(1.0, LONGEST_SIDE / max(known.width, known.height))
        size = max(1, round(known.height * scale)), max(1, round(known.width * scale))
        middle = [(begin + end) / 2]
        for frame in frames(location, times=middle, size=size, resize="area", max_pixels=_MOST_PIXELS):
            return frame.pixels
    except (BadVideo, ImportError):
        pass
    return None


def _range(record: Mapping[str, Any], duration: float) -> tuple[float, float]:
    start, end = record.get(START), record.get(END)
    if isinstance(start, int | float) and isinstance(end, int | float):
        return float(start), float(end)
    return 0.0, duration
