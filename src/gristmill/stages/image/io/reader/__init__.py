"""Reading images: folders, WebDataset shards, Parquet files and JSONL manifests."""

from typing import TYPE_CHECKING

from gristmill.lazy import names_in

if TYPE_CHECKING:
    from gristmill.stages.image.io.reader.images import *  # noqa: F403

_FILES = {"ImageReader": "images", "ImageReaderStage": "images"}
MODULES = {name: f"{__name__}.{file}" for name, file in _FILES.items()}
"""The module of each class. Pipelines of text start without these modules."""
__getattr__ = names_in(MODULES)

__all__ = [*MODULES]
