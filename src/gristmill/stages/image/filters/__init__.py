"""Filters by models: aesthetics, what is not safe for work, and how well a caption fits its image."""

from typing import TYPE_CHECKING

from gristmill.lazy import names_in

if TYPE_CHECKING:
    from gristmill.stages.image.filters.aesthetic import ImageAestheticFilterStage as ImageAestheticFilterStage
    from gristmill.stages.image.filters.conse import ConSESimilarityFilterStage as ConSESimilarityFilterStage
    from gristmill.stages.image.filters.nsfw import ImageNSFWFilterStage as ImageNSFWFilterStage
    from gristmill.stages.image.filters.similarity import (
        ImageTextSimilarityFilterStage as ImageTextSimilarityFilterStage,
    )

_FILES = {
    "ConSESimilarityFilterStage": "conse",
    "ImageAestheticFilterStage": "aesthetic",
    "ImageNSFWFilterStage": "nsfw",
    "ImageTextSimilarityFilterStage": "similarity",
}
MODULES = {name: f"{__name__}.{file}" for name, file in _FILES.items()}
"""The module of each class. Few pipelines have a model: the others start without these modules."""
__getattr__ = names_in(MODULES)

__all__ = [*MODULES]
