"""Splitting videos into clips, encoding clips, and their frames."""

from typing import TYPE_CHECKING

from gristmill.lazy import names_in

if TYPE_CHECKING:
    from gristmill.stages.video.clipping.clip_extraction_stages import *  # noqa: F403
    from gristmill.stages.video.clipping.clip_frame_extraction import *  # noqa: F403
    from gristmill.stages.video.clipping.transnetv2_extraction import *  # noqa: F403
    from gristmill.stages.video.clipping.video_frame_extraction import *  # noqa: F403

_FILES = {
    "ClipFrameExtractionStage": "clip_frame_extraction",
    "ClipTranscodingStage": "clip_extraction_stages",
    "FixedStrideExtractorStage": "clip_extraction_stages",
    "TransNetV2ClipExtractionStage": "transnetv2_extraction",
    "VideoFrameExtractionStage": "video_frame_extraction",
}
MODULES = {name: f"{__name__}.{file}" for name, file in _FILES.items()}
"""The module of each class. Pipelines of text start without these modules."""
__getattr__ = names_in(MODULES)

__all__ = [*MODULES]
