"""Reading videos: folders, files and manifests."""

from typing import TYPE_CHECKING

from gristmill.lazy import names_in

if TYPE_CHECKING:
    from gristmill.stages.video.io.reader.videos import *  # noqa: F403

_FILES = {
    "VideoReader": "videos",
    "VideoReaderStage": "videos",
    "VideoFilesReader": "videos",
    "VideoProbeStage": "videos",
}
MODULES = {name: f"{__name__}.{file}" for name, file in _FILES.items()}
"""The module of each class. Pipelines of text start without these modules."""
__getattr__ = names_in(MODULES)

__all__ = [*MODULES]
