"""Everything for text: readers, writers, filters, modifiers, classifiers, embedders, recipes and tools.

```python
from gristmill.text import JsonlReader, ScoreFilter, WordCountFilter
```
"""

from typing import TYPE_CHECKING

from gristmill.lazy import names_in

# The packages list their names in `__all__`.
from gristmill.stages.text import classifiers, embedders, filters, io, llm, modifiers, recipes, tools
from gristmill.stages.text.filters import *  # noqa: F403
from gristmill.stages.text.io import *  # noqa: F403
from gristmill.stages.text.modifiers import *  # noqa: F403
from gristmill.stages.text.recipes import *  # noqa: F403
from gristmill.stages.text.tools import *  # noqa: F403

if TYPE_CHECKING:
    from gristmill.stages.text.classifiers import *  # noqa: F403
    from gristmill.stages.text.embedders import *  # noqa: F403
    from gristmill.stages.text.llm import *  # noqa: F403

__getattr__ = names_in(
    {name: package.__name__ for package in (classifiers, embedders, llm) for name in package.__all__}
)

__all__ = [
    *classifiers.__all__,
    *embedders.__all__,
    *filters.__all__,
    *io.__all__,
    *llm.__all__,
    *modifiers.__all__,
    *recipes.__all__,
    *tools.__all__,
]
