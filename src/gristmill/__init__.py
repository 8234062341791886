"""gristmill: data curation for model training, as batches that flow through stages.

```python
from gristmill import DocumentBatch, Pipeline, processing_stage
```
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gristmill import errors as errors
    from gristmill.backends.local import LocalExecutor as LocalExecutor
    from gristmill.pipeline import Pipeline as Pipeline
    from gristmill.stages.core import CompositeStage as CompositeStage
    from gristmill.stages.core import ProcessingStage as ProcessingStage
    from gristmill.stages.function_definitions import processing_stage as processing_stage
    from gristmill.stages.resources import Resources as Resources
    from gristmill.tasks import DocumentBatch as DocumentBatch
    from gristmill.tasks import EmptyTask as EmptyTask
    from gristmill.tasks import FileGroupTask as FileGroupTask
    from gristmill.tasks import Task as Task

__version__ = "0.1.0"

_HOMES = {
    "CompositeStage": "gristmill.stages.core",
    "DocumentBatch": "gristmill.tasks",
    "EmptyTask": "gristmill.tasks",
    "FileGroupTask": "gristmill.tasks",
    "LocalExecutor": "gristmill.backends.local",
    "Pipeline": "gristmill.pipeline",
    "ProcessingStage": "gristmill.stages.core",
    "Resources": "gristmill.stages.resources",
    "Task": "gristmill.tasks",
    "processing_stage": "gristmill.stages.function_definitions",
}

__all__ = [*_HOMES, "__version__", "errors"]


def __getattr__(name: str) -> Any:
    if name == "errors":
        return import_module("gristmill.errors")
    if name not in _HOMES:
        raise AttributeError(f"module 'gristmill' has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
