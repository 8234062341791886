"""Everything for images: batches, readers, writers, embedders, filters and deduplication.

```python
from gristmill.image import ImageWriter
```
"""

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING

from gristmill.lazy import names_in

if TYPE_CHECKING:
    from gristmill.stages.image.io.image_writer import ImageWriterStage as ImageWriterStage
    from gristmill.stages.image.io.writer.webdataset import ImageWriter as ImageWriter
    from gristmill.tasks.image import ImageBatch as ImageBatch

PACKAGES = (
    "gristmill.stages.image.io.reader",
    "gristmill.stages.image.io.writer",
    "gristmill.stages.image.embedders",
    "gristmill.stages.image.filters",
    "gristmill.stages.image.deduplication",
)
"""Packages that list their names in ``__all__``, or in ``MODULES``."""


def _modules() -> dict[str, str]:
    found = {"ImageBatch": "gristmill.tasks.image"}
    for name in PACKAGES:
        if find_spec(name) is not None:
            listed = vars(import_module(name))
            found |= dict.fromkeys(listed.get("__all__") or listed["MODULES"], name)
    return found


_MODULES = _modules()
__getattr__ = names_in(_MODULES)

__all__ = [*_MODULES]
