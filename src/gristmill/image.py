"""Everything for images: batches, readers, writers, embedders, filters and deduplication.

```python
from gristmill.image import ImageReader, ImageWriter
```
"""

from typing import TYPE_CHECKING

from gristmill.lazy import names_in
from gristmill.stages.image import deduplication, embedders, filters, llm
from gristmill.stages.image.io import reader, writer

if TYPE_CHECKING:
    from gristmill.stages.image.deduplication import *  # noqa: F403
    from gristmill.stages.image.embedders import *  # noqa: F403
    from gristmill.stages.image.filters import *  # noqa: F403
    from gristmill.stages.image.io.reader import *  # noqa: F403
    from gristmill.stages.image.io.writer import *  # noqa: F403
    from gristmill.stages.image.llm import *  # noqa: F403
    from gristmill.tasks.image import ImageBatch

_PACKAGES = (deduplication, embedders, filters, llm, reader, writer)
__getattr__ = names_in(
    {"ImageBatch": "gristmill.tasks.image"} | {name: one.__name__ for one in _PACKAGES for name in one.__all__}
)

__all__ = ["ImageBatch", *(name for package in _PACKAGES for name in package.__all__)]
