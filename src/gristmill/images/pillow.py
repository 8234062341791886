"""Pillow, with the settings under which images are read: set while they are read, and then as they were before.

The settings are variables of Pillow's modules. Other libraries in the process change them: some switch on that
truncated images are filled with grey.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from gristmill.errors import PipelineError

_lock = threading.Lock()
_readers = 0
_before: tuple[Any, Any, Any] = (None, None, None)


def pillow() -> Any:
    """Return the module `PIL.Image`. Raise `PipelineError`, which names the extra, if Pillow is not installed."""
    try:
        from PIL import Image
    except ImportError as error:
        text = f"images need Pillow, which cannot be imported ({error}): pip install 'gristmill[image]'"
        raise PipelineError(text) from None
    return Image


@contextmanager
def settings(max_pixels: int) -> Iterator[None]:
    """Read images of up to ``max_pixels``, no truncated ones, with one thread for each. Several threads may be inside.

    Warnings of Pillow, about damaged metadata for example, are not shown in this process any more.
    """
    global _readers, _before
    image = pillow()
    from PIL import AvifImagePlugin, ImageFile

    with _lock:
        if not _readers:
            warnings.filterwarnings("ignore", module=r"PIL\.")
            before = image.MAX_IMAGE_PIXELS, ImageFile.LOAD_TRUNCATED_IMAGES, AvifImagePlugin.DEFAULT_MAX_THREADS
            _before = before
            ImageFile.LOAD_TRUNCATED_IMAGES = False
            AvifImagePlugin.DEFAULT_MAX_THREADS = 1
            image.MAX_IMAGE_PIXELS = 0
        _readers += 1
        # Pillow raises an error above twice its limit, for some formats before it allocates a canvas.
        image.MAX_IMAGE_PIXELS = max(image.MAX_IMAGE_PIXELS or 0, (max_pixels + 1) // 2)
    try:
        yield
    finally:
        with _lock:
            _readers -= 1
            if not _readers:
                image.MAX_IMAGE_PIXELS, ImageFile.LOAD_TRUNCATED_IMAGES, AvifImagePlugin.DEFAULT_MAX_THREADS = _before
