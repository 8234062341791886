"""Small frames of whole videos, for the detection of shots."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from gristmill.lazy import Array, np
from gristmill.stages.registry import builtin
from gristmill.stages.video.clipping.clip_extraction_stages import MOST_TASK_BYTES, TIMEOUT_S
from gristmill.stages.video.rows import VideoStage, locations, values, without_bad
from gristmill.tasks.video import SMALL_FRAMES, SMALL_TIMES, VIDEO, VIDEO_BYTES, VideoTask
from gristmill.videos.errors import BadVideo

RESIZE = "bicubic"
"""How frames are made small for the detection of shots: as the authors of TransNetV2 do."""


@builtin
@dataclass(eq=False, repr=False)
class VideoFrameExtractionStage(VideoStage):
    """Decodes all frames of each video at a small size, into columns that `TransNetV2ClipExtractionStage` reads.

    So CPUs decode, and GPUs only compute. The frames of a task take up to 64 MiB, which are ten minutes at 30 frames
    per second. Those of longer videos are not carried: the columns are null, and the stage that needs them decodes them
    itself. Damaged frames are left out. ``output_hw`` is height and width.
    """

    output_hw: Sequence[int] = (27, 48)

    timeout_s = TIMEOUT_S

    def __post_init__(self) -> None:
        if len(self.output_hw) != 2 or any(type(side) is not int or side < 1 for side in self.output_hw):
            raise ValueError(f"output_hw must be a height and a width of at least 1, not {self.output_hw!r}.")

    def inputs(self) -> tuple[list[str], list[str]]:
        return ["data"], [VIDEO]

    def looks_at(self) -> list[str]:
        return [VIDEO_BYTES]

    def outputs(self) -> tuple[list[str], list[str]]:
        return ["data"], [SMALL_FRAMES, SMALL_TIMES]

    def process(self, task: VideoTask) -> VideoTask:
        import pyarrow as pa

        from gristmill.stages.text.filters.columns import set_column

        found: list[bytes | None] = []
        times: list[list[float] | None] = []
        problems: dict[int, BadVideo] = {}
        left = MOST_TASK_BYTES
        sizes = values(task, VIDEO_BYTES)
        for row, location in enumerate(locations(task)):
            try:
                small = self._small(location, sizes[row], left)
            except BadVideo as error:
                problems[row] = error
                continue
            found.append(None if small is None else small[0])
            times.append(None if small is None else small[1])
            left -= 0 if small is None else len(small[0])
        task = without_bad(task, problems)
        set_column(task, SMALL_FRAMES, pa.array(found, pa.large_binary()))
        set_column(task, SMALL_TIMES, pa.array(times, pa.large_list(pa.float64())))
        return task

    def _small(self, location: str, size: int | None, most: int) -> tuple[bytes, list[float]] | None:
        """The frames of a video in a row, and their times. None if they are too many."""
        height, width = self.output_hw
        data = bytearray()
        times = []
        for pixels, time in small_frames(location, (height, width), self.storage, size):
            if len(data) + pixels.nbytes > most:
                return None
            data += pixels.tobytes()
            times.append(time)
        return bytes(data), times


def small_frames(location: str, size: tuple[int, int], options: Any, file_size: int | None = None) -> Any:
    """Yield all frames of a video at a small size, each with its time. Damaged ones are left out."""
    from gristmill.videos.decode import frames

    for one in frames(location, size=size, resize=RESIZE, options=options, tolerant=True, file_size=file_size):
        yield one.pixels, one.time_s


def carried_frames(data: memoryview, size: tuple[int, int]) -> Array:
    """The frames in a value of the column, without a copy: (frames, height, width, 3)."""
    return np.frombuffer(data, np.uint8).reshape(-1, *size, 3)
