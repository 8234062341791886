"""Previews of clips."""

from typing import TYPE_CHECKING

from gristmill.lazy import names_in

if TYPE_CHECKING:
    from gristmill.stages.video.preview.preview import PreviewStage as PreviewStage

MODULES = {"PreviewStage": f"{__name__}.preview"}
"""The module of each class. Pipelines of text start without these modules."""
__getattr__ = names_in(MODULES)

__all__ = ["PreviewStage"]
