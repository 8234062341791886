"""Everything for videos: tasks, readers, splitting, encoding, frames, filters, models and writers.

```python
from gristmill.video import FixedStrideExtractorStage, VideoReader
```
"""

from typing import TYPE_CHECKING

from gristmill.lazy import names_in
from gristmill.stages.video import caption, clipping, deduplication, embedding, filtering, preview
from gristmill.stages.video.io import reader, writer

if TYPE_CHECKING:
    from gristmill.stages.video.caption import *  # noqa: F403
    from gristmill.stages.video.clipping import *  # noqa: F403
    from gristmill.stages.video.deduplication import *  # noqa: F403
    from gristmill.stages.video.embedding import *  # noqa: F403
    from gristmill.stages.video.filtering import *  # noqa: F403
    from gristmill.stages.video.io.reader import *  # noqa: F403
    from gristmill.stages.video.io.writer import *  # noqa: F403
    from gristmill.stages.video.preview import *  # noqa: F403
    from gristmill.tasks.video import VideoTask

_PACKAGES = (caption, clipping, deduplication, embedding, filtering, preview, reader, writer)
__getattr__ = names_in(
    {"VideoTask": "gristmill.tasks.video"} | {name: one.__name__ for one in _PACKAGES for name in one.__all__}
)

__all__ = [
    "VideoTask",
    *caption.__all__,
    *clipping.__all__,
    *deduplication.__all__,
    *embedding.__all__,
    *filtering.__all__,
    *preview.__all__,
    *reader.__all__,
    *writer.__all__,
]
