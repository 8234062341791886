"""Videos to clips: rows of a task become a row for each span of time, with names, times and ids."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from gristmill.lazy import np
from gristmill.stages.video.rows import values
from gristmill.tasks import Account, Dropped
from gristmill.tasks.document import ID
from gristmill.tasks.video import CLIP_ID, DURATION, END, START, VIDEO, VIDEO_ID, VideoTask

CLIPS_OF_TASK = 32
"""Clips of a task, at most: the clips of a long video are encoded by several workers."""
TOO_SHORT = "too short"
NO_CLIPS = "no clips"

Spans = Sequence[tuple[float, float]]
"""The times of clips, in seconds from the first frame of the video, in order."""


@dataclass(frozen=True)
class VideoSplit:
    """The clips of a video, or why it has none."""

    spans: Spans
    reason: str = NO_CLIPS


def whole_span(task: VideoTask) -> list[tuple[float, float]]:
    """The part of its video that each row is: all of it, or a clip."""
    durations = values(task, DURATION, 0.0)
    starts, ends = values(task, START), values(task, END)
    return [
        (start or 0.0, (duration or 0.0) if end is None else end)
        for start, end, duration in zip(starts, ends, durations, strict=True)
    ]


def clip_name(video: str, start_s: float, end_s: float) -> str:
    """The name of a clip: ``talks/a.mp4@12.000-22.000``. It is the same in every run."""
    return f"{video}@{start_s:.3f}-{end_s:.3f}"


def split(task: VideoTask, splits: Sequence[VideoSplit], most: int = CLIPS_OF_TASK) -> Iterator[VideoTask]:
    """Yield tasks of the clips of each row, at most ``most`` in a task and of one row, at least one task.

    A row without clips is dropped. All clips of a row but the first are made.
    """
    import pyarrow as pa

    account = task.take_account() or Account()
    table = task.data
    empty = [row for row, one in enumerate(splits) if not one.spans]
    if empty:
        account.dropped.append(Dropped(table, [splits[row].reason for row in empty], None, np.array(empty)))
    account.made += sum(len(one.spans) - 1 for one in splits if one.spans)
    for row, one in enumerate(splits):
        for first in range(0, len(one.spans), most):
            some = one.spans[first : first + most]
            part = table.take(pa.array([row] * len(some), pa.int64()))
            made = task._with_data(_named(part, some, first))
            made.account, account = account, Account()
            yield made
    if account != Account() or not table.num_rows:
        none = task._with_data(_named(table.slice(0, 0), [], 0))
        none.account = account
        yield none


def _named(table: Any, spans: Spans, first: int) -> Any:
    import pyarrow as pa

    text = pa.large_string()
    source = VIDEO_ID if VIDEO_ID in table.column_names else VIDEO
    videos = table.column(source).to_pylist()
    columns = {
        CLIP_ID: pa.array([clip_name(video, *span) for video, span in zip(videos, spans, strict=True)], text),
        START: pa.array([start for start, _ in spans], pa.float64()),
        END: pa.array([end for _, end in spans], pa.float64()),
    }
    table = table.drop_columns([name for name in columns if name in table.column_names])
    where = table.column_names.index(source) + 1
    for place, (name, column) in enumerate(columns.items()):
        table = table.add_column(where + place, name, column)
    if ID in table.column_names:
        parents = table.column(ID).to_pylist()
        idents = pa.array([f"{parent}/{first + n}" for n, parent in enumerate(parents)], text)
        table = table.set_column(table.column_names.index(ID), ID, idents)
    return table
