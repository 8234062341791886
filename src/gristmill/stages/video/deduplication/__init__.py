"""Clips that show nearly the same."""

from typing import TYPE_CHECKING

from gristmill.lazy import names_in

if TYPE_CHECKING:
    from gristmill.stages.video.deduplication.perceptual import (
        ClipPerceptualDeduplication as ClipPerceptualDeduplication,
    )

MODULES = {"ClipPerceptualDeduplication": f"{__name__}.perceptual"}
"""The module of each class. Pipelines of text start without these modules."""
__getattr__ = names_in(MODULES)

__all__ = [*MODULES]
