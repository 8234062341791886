"""Frames of clips, as pixels."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from gristmill.lazy import Array, np
from gristmill.stages.registry import builtin
from gristmill.stages.video.clipping.clip_extraction_stages import MOST_TASK_BYTES, TIMEOUT_S
from gristmill.stages.video.rows import VideoStage, bad_record, locations, values
from gristmill.tasks import Account
from gristmill.tasks.document import ID
from gristmill.tasks.video import CLIP, CLIP_FRAMES, END, START, VIDEO, VideoTask
from gristmill.videos.errors import BadVideo
from gristmill.videos.source import Location

SEQUENCE, MIDDLE = "sequence", "middle"
POLICIES = (SEQUENCE, MIDDLE)
SHAPE = "_shape"
"""The end of the name of the column with the shapes of the frames in another column."""


def frames_column(policy: str, fps: float) -> str:
    """The name of the column of frames: ``clip_frames_sequence_2``, ``clip_frames_middle``."""
    return f"{CLIP_FRAMES}_{policy}" + (f"_{fps:g}" if policy == SEQUENCE else "")


def frames_of(task: VideoTask, column: str) -> list[Array]:
    """The frames of each clip in a column, without a copy: uint8, (frames, height, width, 3), RGB."""
    from gristmill.tasks.arrow import one_array

    data: Any = one_array(task.data.column(column))
    shapes = task.data.column(column + SHAPE).to_pylist()
    return [
        np.frombuffer(value.as_buffer(), np.uint8).reshape(shape) for value, shape in zip(data, shapes, strict=True)
    ]


@builtin
@dataclass(eq=False, repr=False)
class ClipFrameExtractionStage(VideoStage):
    """Decodes frames of each clip, into columns of bytes that `frames_of` reads.

    ``extraction_policies``: "sequence" for a frame every ``1 / fps`` seconds, for each of ``target_fps``; "middle" for
    the one in the middle. ``target_res`` is height and width; (-1, -1) keeps those of the clip, one -1 keeps the aspect
    ratio. The frames are those of the column ``clip``, or else of the video between the times of the clip. Tasks have
    at most 64 MiB of frames. A clip without frames, or with damaged ones, is a bad record.
    """

    extraction_policies: Sequence[str] = (SEQUENCE,)
    target_fps: Sequence[float] = (2.0,)
    target_res: Sequence[int] = (-1, -1)

    fan_out = True
    timeout_s = TIMEOUT_S

    def __post_init__(self) -> None:
        if not self.extraction_policies or any(one not in POLICIES for one in self.extraction_policies):
            raise ValueError(f"extraction_policies must be some of {POLICIES}, not {self.extraction_policies!r}.")
        if any(not fps > 0 for fps in self.target_fps) or not self.target_fps:
            raise ValueError(f"target_fps must be numbers above 0, not {self.target_fps!r}.")
        if len(self.target_res) != 2 or any(
            type(side) is not int or side == 0 or side < -1 for side in self.target_res
        ):
            raise ValueError(f"target_res must be a height and a width, or -1 for each, not {self.target_res!r}.")

    def inputs(self) -> tuple[list[str], list[str]]:
        return ["data"], []

    def looks_at(self) -> list[str]:
        return [CLIP, VIDEO, START, END]

    def outputs(self) -> tuple[list[str], list[str]]:
        return ["data"], [name + end for name, _ in self._wanted() for end in ("", SHAPE)]

    def _wanted(self) -> list[tuple[str, float | None]]:
        """The columns, each with its rate; None: the frame in the middle."""
        found: list[tuple[str, float | None]] = []
        for policy in self.extraction_policies:
            rates: list[float | None] = [None] if policy == MIDDLE else list(self.target_fps)
            found += [(frames_column(policy, fps or 0.0), fps) for fps in rates]
        return list(dict.fromkeys(found))

    def process(self, task: VideoTask) -> Iterator[VideoTask]:
        account = task.take_account() or Account()
        rows: list[int] = []
        found: list[list[Array]] = []
        size = 0
        idents = values(task, ID, "")
        for row, clip in enumerate(places_of(task)):
            try:
                frames = self._frames(*clip)
            except BadVideo as error:
                account.bad.append(bad_record(idents[row], error))
                continue
            more = sum(one.nbytes for one in frames)
            if rows and size + more > MOST_TASK_BYTES:
                yield self._made(task, rows, found, account)
                rows, found, size, account = [], [], 0, Account()
            rows.append(row)
            found.append(frames)
            size += more
        yield self._made(task, rows, found, account)

    def _frames(self, location: Location | None, start_s: float, end_s: float | None) -> list[Array]:
        """The frames of a clip for each column."""
        from gristmill.videos.decode import frames
        from gristmill.videos.probe import probe

        if location is None:
            raise BadVideo("no clip")
        info = probe(location, self.storage)
        end = info.duration_s if end_s is None else min(end_s, info.duration_s)
        size = target_size((info.height, info.width), self.target_res)
        found = []
        for _, fps in self._wanted():
            times = [start_s + (end - start_s) / 2] if fps is None else None
            some = frames(location, start_s, end, rate=fps, times=times, size=size, options=self.storage)
            pixels = [one.pixels for one in some]
            if not pixels:
                raise BadVideo("no frames in the time of the clip")
            found.append(np.stack(pixels))
        return found

    def _made(self, task: VideoTask, rows: list[int], found: list[list[Array]], account: Account) -> VideoTask:
        import pyarrow as pa

        from gristmill.stages.text.filters.columns import set_column

        made = task._with_data(task.data.take(pa.array(rows, pa.int64())))
        for place, (name, _) in enumerate(self._wanted()):
            some = [frames[place] for frames in found]
            set_column(made, name, pa.array([one.tobytes() for one in some], pa.large_binary()))
            set_column(made, name + SHAPE, pa.array([list(one.shape) for one in some], pa.list_(pa.int32())))
        made.account = account
        return made


def places_of(task: VideoTask) -> Iterator[tuple[Location | None, float, float | None]]:
    """What to decode for each clip: its bytes, or its video with the times of the clip."""
    from gristmill.images.pictures import encoded

    if CLIP in task.data.column_names:
        for clip in encoded(task, CLIP):
            yield clip, 0.0, None
        return
    starts, ends = values(task, START), values(task, END)
    for location, start, end in zip(locations(task), starts, ends, strict=True):
        yield location, start or 0.0, end


def target_size(size: tuple[int, int], wanted: Sequence[int]) -> tuple[int, int] | None:
    """The height and width of frames of this size once they are resized; None: they are not."""
    height, width = wanted
    if height < 0 and width < 0:
        return None
    if height < 0:
        height = max(1, round(size[0] * width / size[1]))
    elif width < 0:
        width = max(1, round(size[1] * height / size[0]))
    return height, width
