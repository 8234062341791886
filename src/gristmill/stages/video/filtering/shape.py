"""Filters by the length, the size and the rate of clips."""

from __future__ import annotations

import math
from typing import Self

from gristmill.lazy import Array, np
from gristmill.stages.registry import builtin
from gristmill.stages.text.filters.columns import column_of
from gristmill.stages.text.filters.document_filter import InRange
from gristmill.stages.video.clips import INFO, Clips
from gristmill.stages.video.filtering.base import ClipFilter
from gristmill.tasks import DocumentBatch
from gristmill.tasks.video import END, START

__all__ = ["ClipFrameRateFilter", "ClipLengthFilter", "ClipShortSideFilter"]


class _Range(InRange):
    """Keeps clips whose measure in some unit is in a range."""

    what = ""
    unit = ""

    def __init__(self, least: float, most: float) -> None:
        if not least <= most:
            raise ValueError(f"{type(self).__name__}: the lower limit, {least!r}, is above the upper one, {most!r}.")
        self.least = least
        self.most = most

    def rule(self) -> str:
        if self.most == math.inf:
            return f"{self.what} of at least {self.least:g} {self.unit}"
        if self.least <= 0:
            return f"{self.what} of at most {self.most:g} {self.unit}"
        return f"{self.what} of {self.least:g} to {self.most:g} {self.unit}"


class _Lengths:
    """The lengths of clips in seconds."""

    def __init__(self, seconds: Array) -> None:
        self.seconds = seconds

    def __len__(self) -> int:
        return len(self.seconds)

    def select(self, mask: Array) -> Self:
        return type(self)(self.seconds[mask])


@builtin
class ClipLengthFilter(_Range):
    """Keeps clips of ``min_length_s`` to ``max_length_s`` seconds: ``end_s`` minus ``start_s``. Nothing is decoded.

    It reads these columns, so it can come before clips are encoded.
    """

    what, unit = "a length", "seconds"
    below, above = "too short", "too long"
    thresholds = {"min_length_s": "least", "max_length_s": "most"}
    default_field = END
    other_fields = (START,)
    reads_texts = False

    def __init__(self, min_length_s: float = 0, max_length_s: float = math.inf) -> None:
        super().__init__(min_length_s, max_length_s)

    def _check_scores(self) -> None:
        """Scores come from columns."""

    def contents_of(self, batch: DocumentBatch, field: str) -> _Lengths:
        ends, starts = (column_of(batch, name).to_numpy().astype(np.float64) for name in (field, START))
        return _Lengths(np.round(ends - starts, 6))

    def contents_key(self, field: str) -> str:
        return f"{field}.lengths"

    def score_contents(self, contents: _Lengths) -> Array:
        return contents.seconds


@builtin
class ClipShortSideFilter(_Range, ClipFilter):
    """Keeps clips whose shorter side has ``min_side`` to ``max_side`` pixels."""

    what, unit = "a short side", "pixels"
    below, above = "too small", "too large"
    thresholds = {"min_side": "least", "max_side": "most"}
    reads_of_clips = INFO

    def __init__(self, min_side: float = 240, max_side: float = math.inf) -> None:
        super().__init__(min_side, max_side)

    def score_clips(self, clips: Clips) -> Array:
        return np.array([min(info.width, info.height) for info in clips.infos], dtype=np.int64)


@builtin
class ClipFrameRateFilter(_Range, ClipFilter):
    """Keeps clips with ``min_fps`` to ``max_fps`` frames per second on average."""

    what, unit = "a rate", "frames per second"
    below, above = "too few frames per second", "too many frames per second"
    thresholds = {"min_fps": "least", "max_fps": "most"}
    reads_of_clips = INFO

    def __init__(self, min_fps: float = 0, max_fps: float = math.inf) -> None:
        super().__init__(min_fps, max_fps)

    def score_clips(self, clips: Clips) -> Array:
        return np.array([info.fps for info in clips.infos], dtype=np.float64)
