"""Embedders: models that give each image a vector of numbers."""

from typing import TYPE_CHECKING

from gristmill.lazy import names_in

if TYPE_CHECKING:
    from gristmill.stages.image.embedders.base import ImageEmbeddingStage as ImageEmbeddingStage

_FILES = {"ImageEmbeddingStage": "base"}
MODULES = {name: f"{__name__}.{file}" for name, file in _FILES.items()}
"""The module of each class. Few pipelines have a model: the others start without these modules."""
__getattr__ = names_in(MODULES)

__all__ = [*MODULES]
