"""Run the stages of a classifier in this process."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from gristmill.stages.asynchronous import results_of
from gristmill.stages.core import CompositeStage
from gristmill.tasks import DocumentBatch


def classified(
    classifier: CompositeStage[Any, Any], documents: list[str | None], **columns: list[Any]
) -> DocumentBatch:
    """The documents after all stages of a classifier."""
    batch = DocumentBatch(data=pa.table({"text": pa.array(documents, pa.string()), **columns}))
    for stage in classifier.flatten():
        stage.check_needs()
        stage.setup()
        [batch] = results_of(stage, batch)
        stage.teardown()
    return batch
