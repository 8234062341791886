"""Clips of a fixed length, and the encoding of clips."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from gristmill.errors import PlanError
from gristmill.stages.core import WorkerMetadata
from gristmill.stages.registry import builtin
from gristmill.stages.resources import Resources
from gristmill.stages.video.clipping.spans import TOO_SHORT, Spans, VideoSplit, split, whole_span
from gristmill.stages.video.rows import VideoStage, bad_record, locations, values
from gristmill.tasks import Account
from gristmill.tasks.document import ID
from gristmill.tasks.video import CLIP, CLIP_ID, DURATION, END, START, VIDEO, VIDEO_BYTES, VIDEO_ID, VideoTask
from gristmill.videos.encode import ENCODERS, Encoding
from gristmill.videos.errors import BadVideo

MOST_TASK_BYTES = 64 << 20
"""Encoded clips, or decoded frames, of a task: a larger clip is alone in its task."""
TIMEOUT_S = 3600.0


@builtin
@dataclass(eq=False, repr=False)
class FixedStrideExtractorStage(VideoStage):
    """Splits videos into clips of ``clip_len_s`` seconds, one every ``clip_stride_s`` seconds.

    The last clips end with the video, and are left out below ``min_clip_length_s``. With ``limit_clips`` above 0 only
    so many clips of a video are made. No frame is decoded. A video without clips is dropped as ``too short``.
    """

    clip_len_s: float = 10.0
    clip_stride_s: float = 10.0
    min_clip_length_s: float = 2.0
    limit_clips: int = 0

    fan_out = True

    def __post_init__(self) -> None:
        for name, value in (("clip_len_s", self.clip_len_s), ("clip_stride_s", self.clip_stride_s)):
            if not (isinstance(value, int | float) and 0 < value < math.inf):
                raise ValueError(f"{name} must be a number of seconds above 0, not {value!r}.")
        if not 0 <= self.min_clip_length_s <= self.clip_len_s:
            raise ValueError(
                f"min_clip_length_s must be from 0 to clip_len_s={self.clip_len_s:g}, not {self.min_clip_length_s!r}."
            )

    def inputs(self) -> tuple[list[str], list[str]]:
        return ["data"], [VIDEO, DURATION]

    def looks_at(self) -> list[str]:
        return [VIDEO_ID, START, END]

    def outputs(self) -> tuple[list[str], list[str]]:
        return ["data"], [CLIP_ID, START, END]

    def process(self, task: VideoTask) -> Iterator[VideoTask]:
        return split(task, [VideoSplit(self._spans(*whole), TOO_SHORT) for whole in whole_span(task)])

    def _spans(self, begin: float, stop: float) -> Spans:
        found: list[tuple[float, float]] = []
        number = 0
        while not self.limit_clips or self.limit_clips < 0 or len(found) < self.limit_clips:
            start = round(begin + number * self.clip_stride_s, 6)
            end = round(min(start + self.clip_len_s, stop), 6)
            if start >= stop or end - start < self.min_clip_length_s:
                break  # each later one is not longer
            found.append((start, end))
            number += 1
        return found


@builtin
@dataclass(eq=False, repr=False)
class ClipTranscodingStage(VideoStage):
    """Encodes each clip as an MP4 file, into the column ``clip``. A row that is no clip yet is a whole video.

    ``encoder`` is "libx264", "libvpx-vp9", or "h264_nvenc", which needs a GPU with an encoder: A100, H100 and H200 have
    none. ``crf`` is the quality, ``preset`` the effort. With ``use_input_bit_rate`` the bit rate of the video is used
    instead. With ``copy_if_possible`` the packets of a clip that begins and ends with key frames are copied as they
    are, in any codec. ``keep_audio`` keeps the sound.

    Frames are upright, and keep their times. The bytes of a clip depend on these arguments and on the versions of the
    encoders only. A clip with damaged frames, or without frames, is a bad record. Tasks have at most 64 MiB of clips.
    """

    encoder: str = "libx264"
    crf: float | None = None
    preset: str = "fast"
    use_input_bit_rate: bool = False
    copy_if_possible: bool = False
    keep_audio: bool = False
    encoder_threads: int = 1
    num_cpus_per_worker: float = 1.0
    nb_streams_per_gpu: int = 3

    fan_out = True
    timeout_s = TIMEOUT_S
    """for the clips of one output task."""
    indifferent: ClassVar[tuple[str, ...]] = ("num_cpus_per_worker", "nb_streams_per_gpu")

    def __post_init__(self) -> None:
        if self.encoder not in ENCODERS:
            raise ValueError(f"encoder must be one of {', '.join(ENCODERS)}, not {self.encoder!r}.")
        self._encoding()
        needs_gpu = self.encoder == "h264_nvenc"
        self.resources = Resources(cpus=self.num_cpus_per_worker, gpus=1 / self.nb_streams_per_gpu if needs_gpu else 0)

    def inputs(self) -> tuple[list[str], list[str]]:
        return ["data"], [VIDEO]

    def looks_at(self) -> list[str]:
        return [VIDEO_ID, CLIP_ID, START, END, VIDEO_BYTES]

    def outputs(self) -> tuple[list[str], list[str]]:
        return ["data"], [CLIP_ID, START, END, CLIP]

    def setup(self, worker_metadata: WorkerMetadata | None = None) -> None:
        if self.encoder != "h264_nvenc":
            return
        from gristmill.videos.encode import can_encode

        if not can_encode(self._encoding()):
            raise PlanError(
                f"{self.name!r}: the GPU of this machine has no encoder, or its driver does not offer it.\n"
                '    Set encoder="libx264".'
            )

    def process(self, task: VideoTask) -> Iterator[VideoTask]:
        is_split = CLIP_ID in task.data.column_names
        for part in [task] if is_split else split(task, [VideoSplit([whole]) for whole in whole_span(task)]):
            yield from self._encoded(part)

    def _encoded(self, task: VideoTask) -> Iterator[VideoTask]:
        account = task.take_account() or Account()
        rows: list[int] = []
        clips: list[bytes] = []
        columns = (locations(task), values(task, START), values(task, END), values(task, VIDEO_BYTES), values(task, ID))
        for row, (location, start, end, size, ident) in enumerate(zip(*columns, strict=True)):
            try:
                clip = self._clip(location, start, end, size)
            except BadVideo as error:
                account.bad.append(bad_record(ident or "", error))
                continue
            if clips and sum(map(len, clips)) + len(clip) > MOST_TASK_BYTES:
                yield _with_clips(task, rows, clips, account)
                rows, clips, account = [], [], Account()
            rows.append(row)
            clips.append(clip)
        yield _with_clips(task, rows, clips, account)

    def _clip(self, location: str, start_s: float, end_s: float | None, size: int | None) -> bytes:
        from gristmill.videos.copy import copy_clip
        from gristmill.videos.encode import transcode
        from gristmill.videos.probe import probe

        if self.copy_if_possible:
            copied = copy_clip(location, start_s, end_s, has_audio=self.keep_audio, options=self.storage, size=size)
            if copied is not None:
                return copied
        bit_rate = probe(location, self.storage).bit_rate if self.use_input_bit_rate else None
        return transcode(location, start_s, end_s, self._encoding(bit_rate or None), options=self.storage, size=size)

    def _encoding(self, bit_rate: int | None = None) -> Encoding:
        return Encoding(self.encoder, self.crf, bit_rate, self.preset, self.keep_audio, self.encoder_threads)


def _with_clips(task: VideoTask, rows: list[int], clips: list[bytes], account: Account) -> VideoTask:
    """The task of some rows, with their encoded clips after the times."""
    import pyarrow as pa

    table = task.data.take(pa.array(rows, pa.int64()))
    table = table.drop_columns([CLIP]) if CLIP in table.column_names else table
    where = table.column_names.index(END) + 1
    made = task._with_data(table.add_column(where, CLIP, pa.array(clips, pa.large_binary())))
    made.account = account
    return made
