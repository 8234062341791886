"""Images that are equal, or nearly equal."""

from gristmill.stages.image.deduplication.exact import ImageExactDeduplication
from gristmill.stages.image.deduplication.ids import ImageDuplicatesRemovalStage
from gristmill.stages.image.deduplication.perceptual import ImagePerceptualDeduplication

__all__ = ["ImageDuplicatesRemovalStage", "ImageExactDeduplication", "ImagePerceptualDeduplication"]
