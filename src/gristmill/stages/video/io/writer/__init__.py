"""Writing clips to files."""

from typing import TYPE_CHECKING

from gristmill.lazy import names_in

if TYPE_CHECKING:
    from gristmill.stages.video.io.writer.clip_writer import ClipWriterStage as ClipWriterStage

MODULES = {"ClipWriterStage": f"{__name__}.clip_writer"}
"""The module of each class. Pipelines of text start without these modules."""
__getattr__ = names_in(MODULES)

__all__ = ["ClipWriterStage"]
