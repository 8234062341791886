"""Embedders: models that give each document a vector of numbers."""

from typing import TYPE_CHECKING

from gristmill.lazy import names_in

if TYPE_CHECKING:
    from gristmill.stages.text.embedders.base import *  # noqa: F403

_FILES = {"EmbeddingCreatorStage": "base"}
MODULES = {name: f"{__name__}.{file}" for name, file in _FILES.items()}
"""The module of each class. Few pipelines have a model: the others start without these modules."""
__getattr__ = names_in(MODULES)

__all__ = [*MODULES]
