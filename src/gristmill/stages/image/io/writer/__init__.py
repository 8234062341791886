"""Writing images to files."""

from typing import TYPE_CHECKING

from gristmill.lazy import names_in

if TYPE_CHECKING:
    from gristmill.stages.image.io.image_writer import ImageWriterStage as ImageWriterStage
    from gristmill.stages.image.io.writer.webdataset import ImageWriter as ImageWriter

MODULES = {
    "ImageWriter": "gristmill.stages.image.io.writer.webdataset",
    "ImageWriterStage": "gristmill.stages.image.io.image_writer",
}
"""The module of each class. Pipelines of texts start without these modules."""
__getattr__ = names_in(MODULES)

__all__ = ["ImageWriter", "ImageWriterStage"]
