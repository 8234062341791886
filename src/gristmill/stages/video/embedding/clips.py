"""The frames of clips as columns: where a clip's frames come from, and tasks of a limited size."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gristmill.lazy import Array, np
from gristmill.stages.text.filters.columns import set_column
from gristmill.stages.video.clipping.clip_extraction_stages import TIMEOUT_S
from gristmill.stages.video.rows import VideoStage, locations, values, without_bad
from gristmill.tasks.video import CLIP, END, START, VIDEO, VideoTask
from gristmill.videos.errors import BadVideo
from gristmill.videos.source import Location

if TYPE_CHECKING:
    import pyarrow as pa

TASK_BYTES = 64 << 20
"""The most bytes of frames in a task, unless one clip has more."""


@dataclass(frozen=True, slots=True)
class ClipSource:
    """Where the frames of a clip are."""

    location: Location
    """A video, or the bytes of the encoded clip."""
    start_s: float
    """When the clip begins in it, from its first frame."""
    length_s: float
    """How long the clip is."""
    options: Mapping[str, Any] | None = None
    """Of the storage."""

    def frames_at(self, times: Sequence[float], size: tuple[int, int], resize: str = "bicubic") -> Array:
        """Return the frames shown at these times, from the start of the clip: uint8, (times, height, width, 3)."""
        from gristmill.videos.decode import frames

        made = np.empty((len(times), *size, 3), dtype=np.uint8)
        shown = [self.start_s + time for time in times]
        count = 0
        for frame in frames(self.location, times=shown, size=size, resize=resize, options=self.options):
            made[count] = frame.pixels
            count += 1
        if count < len(times):
            raise BadVideo("no frames")
        return made


def clip_sources(task: VideoTask, storage: Mapping[str, Any]) -> Iterator[ClipSource | BadVideo]:
    """Yield where the frames of each row are: its encoded clip if it has one, else its video; or why there are none.

    A row without times is a whole video. ``storage`` are the options of the storage of videos.
    """
    clips = task.data.column(CLIP) if CLIP in task.data.column_names else None
    times = zip(values(task, START), values(task, END), locations(task), strict=True)
    for row, (start, end, video) in enumerate(times):
        clip = clips[row] if clips is not None else None
        try:
            if clip is not None and clip.is_valid:
                yield _source(memoryview(clip.as_buffer()), 0.0, _length(start, end), storage)
            elif video is not None:
                yield _source(video, start or 0.0, _length(start, end), storage)
            else:
                yield BadVideo("no video")
        except BadVideo as error:
            yield error


def _length(start: float | None, end: float | None) -> float | None:
    return None if end is None else end - (start or 0.0)


def _source(location: Location, start: float, length: float | None, storage: Mapping[str, Any]) -> ClipSource:
    from gristmill.videos.probe import probe

    if length is None:
        length = probe(location, storage).duration_s - start
    if not length > 0:
        raise BadVideo("no frames")
    return ClipSource(location, start, length, storage)


class ClipFrameStage(VideoStage):
    """Makes columns of the frames of each clip, in tasks of a limited size.

    A clip that cannot be read is reported as a bad record, with its reason.
    """

    fan_out = True
    timeout_s = TIMEOUT_S
    """For the clips of one output task."""
    loads = ("av",)

    @abstractmethod
    def frames_of(self, row: int, source: ClipSource, task: VideoTask) -> tuple[Any, int]:
        """Return what a clip's columns are made of, and its bytes. Raise `BadVideo` if there is nothing."""

    @abstractmethod
    def columns_of(self, made: Sequence[Any]) -> Mapping[str, pa.Array]:
        """Return the columns of some clips."""

    def inputs(self) -> tuple[list[str], list[str]]:
        return ["data"], [VIDEO]

    def looks_at(self) -> list[str]:
        return [CLIP, START, END]

    def process(self, task: VideoTask) -> Iterator[VideoTask]:
        made: list[Any] = []
        bad: dict[int, BadVideo] = {}
        first = size = 0
        for row, source in enumerate(clip_sources(task, self.storage)):
            try:
                if isinstance(source, BadVideo):
                    raise source
                one, count = self.frames_of(row, source, task)
            except BadVideo as error:
                bad[row - first] = error
                continue
            if made and size + count > TASK_BYTES:
                yield self._part(task, first, row, made, bad)
                made, bad, size, first = [], {}, 0, row
            made.append(one)
            size += count
        yield self._part(task, first, task.num_items, made, bad)

    def _part(self, task: VideoTask, first: int, stop: int, made: list[Any], bad: Mapping[int, BadVideo]) -> VideoTask:
        part = without_bad(task.slice(first, stop), bad)
        for name, column in self.columns_of(made).items():
            set_column(part, name, column)
        return part
