"""Images that are equal, or nearly equal."""

from typing import TYPE_CHECKING

from gristmill.lazy import names_in

if TYPE_CHECKING:
    from gristmill.stages.image.deduplication.exact import ImageExactDeduplication as ImageExactDeduplication
    from gristmill.stages.image.deduplication.ids import ImageDuplicatesRemovalStage as ImageDuplicatesRemovalStage
    from gristmill.stages.image.deduplication.perceptual import (
        ImagePerceptualDeduplication as ImagePerceptualDeduplication,
    )

_FILES = {
    "ImageDuplicatesRemovalStage": "ids",
    "ImageExactDeduplication": "exact",
    "ImagePerceptualDeduplication": "perceptual",
}
MODULES = {name: f"{__name__}.{file}" for name, file in _FILES.items()}
"""The module of each class. Pipelines without images start without these modules."""
__getattr__ = names_in(MODULES)

__all__ = [*MODULES]
