"""Embedders: models that give each clip a vector of numbers."""

from typing import TYPE_CHECKING

from gristmill.lazy import names_in

if TYPE_CHECKING:
    from gristmill.stages.video.embedding.cosmos import CosmosEmbed1EmbeddingStage as CosmosEmbed1EmbeddingStage
    from gristmill.stages.video.embedding.cosmos import CosmosEmbed1FrameCreationStage as CosmosEmbed1FrameCreationStage
    from gristmill.stages.video.embedding.images import ClipEmbeddingStage as ClipEmbeddingStage

_FILES = {
    "ClipEmbeddingStage": "images",
    "ClipEmbeddingModelStage": "images",
    "ClipInputStage": "images",
    "CosmosEmbed1EmbeddingStage": "cosmos",
    "CosmosEmbed1FrameCreationStage": "cosmos",
}
MODULES = {name: f"{__name__}.{file}" for name, file in _FILES.items()}
"""The module of each class. Few pipelines have a model: the others start without these modules."""
__getattr__ = names_in(MODULES)

__all__ = ["ClipEmbeddingStage", "CosmosEmbed1EmbeddingStage", "CosmosEmbed1FrameCreationStage"]
