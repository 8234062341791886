"""Windows of frames: the parts of a clip that get a caption each, and their column."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gristmill.lazy import Array, np
from gristmill.tasks import DocumentBatch

if TYPE_CHECKING:
    import pyarrow as pa

WINDOWS = "_gristmill_caption_windows"
"""The column of the windows of each clip. The stage that makes captions removes it."""
LEAST_FRAMES = 4
"""A clip with fewer frames gets no window."""


@dataclass(frozen=True, slots=True)
class PreparedWindow:
    """Some frames of a clip, and the question about them."""

    start_s: float
    """From the start of the clip."""
    end_s: float
    fps: float
    """The rate of the frames."""
    prompt: str | None
    frames: Array
    """uint8, (frames, height, width, 3)."""


def windows_of(frames: int, size: int, least: int) -> list[tuple[int, int]]:
    """Return the windows of a clip with so many frames: the first frame of each, and the one after its last.

    All have ``size`` frames but the last: the rest is a window if it has ``least`` frames, or else part of the one
    before.
    """
    if frames < LEAST_FRAMES:
        return []
    firsts = list(range(0, max(1, frames - least + 1), size)) if frames > size else [0]
    return list(zip(firsts, [*firsts[1:], frames], strict=True))


def sample_count(frames: int, fps: float, sampling_fps: float) -> int:
    """Return how many frames of a window are used: an even number, at least four unless there are fewer."""
    wanted = int(frames / fps * sampling_fps + 1e-6) // 2 * 2
    return max(2, min(max(LEAST_FRAMES, wanted), frames // 2 * 2))


def window_column(clips: Sequence[Sequence[PreparedWindow]]) -> pa.Array:
    """Return the windows of each clip as an Arrow column."""
    import pyarrow as pa

    flat = [one for windows in clips for one in windows]
    pixels = np.concatenate([one.frames.reshape(-1) for one in flat]) if flat else np.zeros(0, np.uint8)
    ends = np.cumsum([0, *(one.frames.size for one in flat)]).astype(np.int64)
    buffers = [None, pa.py_buffer(ends), pa.py_buffer(pixels)]
    parts: dict[str, Any] = {
        "start_s": pa.array([one.start_s for one in flat], pa.float64()),
        "end_s": pa.array([one.end_s for one in flat], pa.float64()),
        "fps": pa.array([one.fps for one in flat], pa.float64()),
        "prompt": pa.array([one.prompt for one in flat], pa.large_string()),
        "shape": pa.array([list(one.frames.shape) for one in flat], pa.list_(pa.int32(), 4)),
        "pixels": pa.Array.from_buffers(pa.large_binary(), len(flat), buffers),
    }
    rows = pa.StructArray.from_arrays(list(parts.values()), list(parts))
    starts = np.cumsum([0, *(len(windows) for windows in clips)]).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(starts), rows)


def prepared_windows(task: DocumentBatch) -> Iterator[list[PreparedWindow]]:
    """Yield the windows of each clip of a task. Pixels are not copied."""
    column = task.data.column(WINDOWS)
    for clip in column:
        found = []
        for row in clip.values if clip.is_valid else []:
            plain = {name: row[name].as_py() for name in ("start_s", "end_s", "fps", "prompt", "shape")}
            frames = np.frombuffer(row["pixels"].as_buffer(), np.uint8).reshape(plain.pop("shape"))
            found.append(PreparedWindow(**plain, frames=frames))
        yield found
