"""Captions of clips by models of images and texts, and their enhancement by models of texts."""

from typing import TYPE_CHECKING

from gristmill.lazy import names_in

if TYPE_CHECKING:
    from gristmill.stages.video.caption.enhancement import CaptionEnhancementStage as CaptionEnhancementStage
    from gristmill.stages.video.caption.generation import CaptionGenerationStage as CaptionGenerationStage
    from gristmill.stages.video.caption.preparation import CaptionPreparationStage as CaptionPreparationStage

_FILES = {
    "CaptionEnhancementStage": "enhancement",
    "CaptionGenerationStage": "generation",
    "CaptionPreparationStage": "preparation",
}
MODULES = {name: f"{__name__}.{file}" for name, file in _FILES.items()}
"""The module of each class. Few pipelines have a model: the others start without these modules."""
__getattr__ = names_in(MODULES)

__all__ = [*MODULES]
