"""Batches of images, and how stages run on them in this process."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from gristmill.stages.asynchronous import results_of
from gristmill.stages.core import CompositeStage, ProcessingStage
from gristmill.tasks.document import ID
from gristmill.tasks.image import CAPTION, IMAGE, IMAGE_ID, ImageBatch


def batch(images: Sequence[bytes | None], captions: Sequence[str | None] | None = None) -> ImageBatch:
    """Images with ids."""
    names = [f"{number:04}" for number in range(len(images))]
    columns: dict[str, Any] = {
        IMAGE: pa.array(images, pa.large_binary()),
        IMAGE_ID: pa.array(names, pa.string()),
        CAPTION: pa.array(captions or [None] * len(images), pa.string()),
        ID: pa.array([f"shard.tar#{number * 512}" for number in range(len(images))], pa.large_string()),
    }
    return ImageBatch(data=pa.table(columns))


def staged(stage: ProcessingStage[Any, Any], task: Any) -> Any:
    """The task after a stage, or all stages of a composite."""
    for one in stage.flatten() if isinstance(stage, CompositeStage) else [stage]:
        one.check_needs()
        one.setup()
        [task] = results_of(one, task)
        one.teardown()
    return task


def numbers(task: Any, field: str) -> Any:
    """A column as an array of NumPy; rows for lists."""
    import numpy as np

    return np.array(task.data.column(field).to_pylist())
