"""Filters of clips, for `ScoreFilter`, and stages that filter clips by motion and by models."""

from typing import TYPE_CHECKING

from gristmill.lazy import names_in

if TYPE_CHECKING:
    from gristmill.stages.video.filtering.base import ClipFilter
    from gristmill.stages.video.filtering.clip_aesthetic_filter import (
        ClipAestheticFilterStage as ClipAestheticFilterStage,
    )
    from gristmill.stages.video.filtering.looks import *  # noqa: F403
    from gristmill.stages.video.filtering.motion_filter import *  # noqa: F403
    from gristmill.stages.video.filtering.shape import *  # noqa: F403

_FILES = {
    "BlankClipFilter": "looks",
    "ClipAestheticFilterStage": "clip_aesthetic_filter",
    "ClipAestheticScoreStage": "clip_aesthetic_filter",
    "ClipFrameRateFilter": "shape",
    "ClipLengthFilter": "shape",
    "ClipShortSideFilter": "shape",
    "ClipTextOverlayFilter": "looks",
    "LetterboxFilter": "looks",
    "MotionFilter": "looks",
    "MotionFilterStage": "motion_filter",
    "MotionVectorDecodeStage": "motion_filter",
    "StaticClipFilter": "looks",
}
MODULES = {name: f"{__name__}.{file}" for name, file in _FILES.items()}
"""The module of each class. Pipelines of text start without these modules."""
__getattr__ = names_in({**MODULES, "ClipFilter": f"{__name__}.base"})

__all__ = [*MODULES, "ClipFilter"]
