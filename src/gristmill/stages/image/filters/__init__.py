"""Filters of images, for `ScoreFilter`, and stages that filter images by models."""

from typing import TYPE_CHECKING

from gristmill.lazy import names_in

if TYPE_CHECKING:
    from gristmill.stages.image.filters.aesthetic import *  # noqa: F403
    from gristmill.stages.image.filters.base import ImageFilter
    from gristmill.stages.image.filters.conse import *  # noqa: F403
    from gristmill.stages.image.filters.looks import *  # noqa: F403
    from gristmill.stages.image.filters.nsfw import *  # noqa: F403
    from gristmill.stages.image.filters.similarity import *  # noqa: F403
    from gristmill.stages.image.filters.size import *  # noqa: F403
    from gristmill.stages.image.filters.text_overlay import *  # noqa: F403

_FILES = {
    "AnimatedImageFilter": "size",
    "AspectRatioFilter": "size",
    "BlankImageFilter": "looks",
    "BlurFilter": "looks",
    "ColorfulnessFilter": "looks",
    "ConSESimilarityFilterStage": "conse",
    "ImageAestheticFilterStage": "aesthetic",
    "ImageBytesFilter": "size",
    "ImageEntropyFilter": "looks",
    "ImageHeightFilter": "size",
    "ImageNSFWFilterStage": "nsfw",
    "ImageTextSimilarityFilterStage": "similarity",
    "ImageWidthFilter": "size",
    "PixelCountFilter": "size",
    "ShortSideFilter": "size",
    "TextOverlayFilter": "text_overlay",
}
MODULES = {name: f"{__name__}.{file}" for name, file in _FILES.items()}
"""The module of each class. Pipelines of texts start without these modules."""
__getattr__ = names_in({**MODULES, "ImageFilter": f"{__name__}.base"})

__all__ = [*MODULES, "ImageFilter"]
