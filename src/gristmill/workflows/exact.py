"""Exact deduplication of files."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

from gristmill.stages.deduplication.exact import ExactDeduplication
from gristmill.stages.deduplication.survivors import FIRST
from gristmill.workflows.deduplication import DeduplicationWorkflow, Paths


@dataclass(eq=False, repr=False)
class ExactDeduplicationWorkflow(DeduplicationWorkflow):
    """Finds documents with equal texts in JSONL or Parquet files, and removes them.

        workflow = ExactDeduplicationWorkflow("data/", "out/", input_blocksize="1GB")
        print(workflow.run().summary())

    ``perform_removal=False`` writes the records only. ``input_blocksize`` is how much is read at a time; the rest is
    as in `ExactDeduplication` and the readers and writers.
    """

    name = "exact_deduplication"
    stage_class = ExactDeduplication

    input_path: Paths
    output_path: str | os.PathLike[str]
    text_field: str = "text"
    input_blocksize: int | str | None = None
    input_filetype: str | None = None
    output_filetype: str | None = None
    perform_removal: bool = True
    survivor: str = FIRST
    score_field: str | None = None
    memory_limit: int | str | None = None
    device: str | None = None
    id_field: str | None = None
    read_kwargs: dict[str, Any] | None = None
    write_kwargs: dict[str, Any] | None = None
