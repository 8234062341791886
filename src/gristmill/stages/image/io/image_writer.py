"""The image writer under NeMo Curator's name and arguments."""

from __future__ import annotations

import os

from gristmill.stages.image.io.writer.webdataset import MAX_SHARD_BYTES, ImageWriter
from gristmill.stages.registry import builtin


@builtin
class ImageWriterStage(ImageWriter):
    """`ImageWriter` with the name of the argument that NeMo Curator has for the folder: ``output_dir``."""

    def __init__(
        self,
        output_dir: str | os.PathLike[str],
        images_per_tar: int = 1000,
        max_shard_bytes: int | str = MAX_SHARD_BYTES,
        excluded: bool | float = True,
        scores: bool = True,
    ) -> None:
        super().__init__(output_dir, images_per_tar, max_shard_bytes, excluded=excluded, scores=scores)
