"""Writing images to files."""

from gristmill.lazy import names_in

_FILES = {"ImageWriter": "writer.webdataset", "ImageWriterStage": "image_writer"}
MODULES = {name: f"gristmill.stages.image.io.{file}" for name, file in _FILES.items()}
__getattr__ = names_in(MODULES)
