"""Filters by what some frames of a clip show: nothing, always the same, dark bars, text."""

from __future__ import annotations

from itertools import pairwise

from gristmill.lazy import Array, np
from gristmill.stages.image.filters.looks import blank_share
from gristmill.stages.image.filters.text_overlay import TextOverlayFilter
from gristmill.stages.registry import builtin
from gristmill.stages.text.filters.document_filter import AtLeast, AtMost
from gristmill.stages.video.clips import MOTION, Clips
from gristmill.stages.video.filtering.base import ClipFilter
from gristmill.videos.bars import bars

__all__ = ["BlankClipFilter", "ClipTextOverlayFilter", "LetterboxFilter", "MotionFilter", "StaticClipFilter"]

UNCHANGED = 1.0
"""Frames whose pixels differ by less than this on average, of 255, show the same."""
TEXT_FRAMES = 3
"""The frames in which text is looked for: it takes about half a second for each."""


@builtin
class MotionFilter(ClipFilter, AtLeast):
    """Keeps clips in which points move by at least ``min_motion`` of width plus height, on average, in 1/30 s.

    It is the first rule of `MotionFilterStage`, for `ScoreFilter` together with other rules.
    """

    rule_text = "motion of at least {0.least:g}"
    thresholds = {"min_motion": "least"}
    reads_of_clips = MOTION

    def __init__(self, min_motion: float = 0.00098) -> None:
        self.least = min_motion

    def score_clips(self, clips: Clips) -> Array:
        return np.array([motion.mean for motion in clips.motions], dtype=np.float64)


@builtin
class BlankClipFilter(ClipFilter, AtMost):
    """Keeps clips in whose frames at most ``max_share`` of the pixels have the same brightness, in 32 levels.

    The score is the mean of eight frames, so a clip that fades in from black is not blank.
    """

    rule_text = "at most {0.percent} of the pixels equally bright"
    thresholds = {"max_share": "most"}

    def __init__(self, max_share: float = 0.95) -> None:
        self.most = max_share

    def score_clips(self, clips: Clips) -> Array:
        return clips.measured(_blank)


@builtin
class StaticClipFilter(ClipFilter, AtMost):
    """Keeps clips that show the same as before in at most ``max_share`` of their steps.

    Eight frames are compared, each with the one before it. They show the same if their pixels differ by less than 1 of
    255 on average. A frozen picture, or a slide that is shown all the time, has a score of 1.
    """

    rule_text = "at most {0.percent} of the steps without a change"
    thresholds = {"max_share": "most"}

    def __init__(self, max_share: float = 0.9) -> None:
        self.most = max_share

    def score_clips(self, clips: Clips) -> Array:
        return clips.measured(_static)


@builtin
class LetterboxFilter(ClipFilter, AtMost):
    """Keeps clips of which dark bars cover at most ``max_share`` of the area.

    Bars are black rows at the top and the bottom, or columns on both sides, in all of eight frames.
    """

    rule_text = "bars on at most {0.percent} of the area"
    thresholds = {"max_share": "most"}

    def __init__(self, max_share: float = 0.05) -> None:
        self.most = max_share

    def score_clips(self, clips: Clips) -> Array:
        return clips.measured(_bars)


@builtin
class ClipTextOverlayFilter(ClipFilter, AtMost):
    """Keeps clips of which lines of text cover at most ``max_share`` of the area, on average over three frames.

    The models are those of `TextOverlayFilter`. Needs ``pip install 'gristmill[ocr]'``.
    """

    rule_text = "text on at most {0.percent} of the area"
    thresholds = {"max_share": "most"}

    def __init__(self, max_share: float = 0.1) -> None:
        self.most = max_share
        self._detector = TextOverlayFilter()

    def check_needs(self) -> None:
        self._detector.check_needs()

    def setup(self) -> None:
        self._detector.setup()

    def score_clips(self, clips: Clips) -> Array:
        self.setup()
        return clips.measured(self._text)

    def _text(self, frames: Array) -> float:
        numbers = [int((n + 0.5) * len(frames) / TEXT_FRAMES) for n in range(TEXT_FRAMES)]
        return float(np.mean([self._detector.text_share(frames[number]) for number in numbers]))


def _blank(frames: Array) -> float:
    return float(np.mean([blank_share(pixels) for pixels in frames]))


def _static(frames: Array) -> float:
    if len(frames) < 2:
        return 1.0
    steps = [np.abs(after.astype(np.int16) - before).mean() for before, after in pairwise(frames)]
    return float(np.mean([step < UNCHANGED for step in steps]))


def _bars(frames: Array) -> float:
    return bars(frames).share
