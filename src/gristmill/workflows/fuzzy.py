"""Fuzzy deduplication of files."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

from gristmill.stages.deduplication.fuzzy.stage import CHAR_NGRAMS, MAX_CHAINED_CLUSTER, FuzzyDeduplication
from gristmill.stages.deduplication.survivors import FIRST
from gristmill.workflows.deduplication import DeduplicationWorkflow, Paths


@dataclass(eq=False, repr=False)
class FuzzyDeduplicationWorkflow(DeduplicationWorkflow):
    """Finds documents that are nearly the same in JSONL or Parquet files, and removes them.

        workflow = FuzzyDeduplicationWorkflow("data/", "out/", memory_limit="16GB")
        print(workflow.run().summary())

    ``perform_removal=False`` writes the records only. ``input_blocksize`` is how much is read at a time; the rest is
    as in `FuzzyDeduplication` and the readers and writers.
    """

    name = "fuzzy_deduplication"
    stage_class = FuzzyDeduplication

    input_path: Paths
    output_path: str | os.PathLike[str]
    text_field: str = "text"
    char_ngrams: int = CHAR_NGRAMS
    num_bands: int = 20
    minhashes_per_band: int = 13
    bands_per_iteration: int | None = None
    use_64_bit_hash: bool = False
    seed: int = 42
    input_blocksize: int | str | None = None
    input_filetype: str | None = None
    output_filetype: str | None = None
    perform_removal: bool = True
    word_ngrams: int | None = None
    method: str = "fast"
    survivor: str = FIRST
    score_field: str | None = None
    verify: bool = False
    verify_sample: int = 1000
    jaccard_threshold: float | None = None
    memory_limit: int | str | None = None
    device: str | None = None
    normalize: bool = True
    id_field: str | None = None
    max_chained_cluster: int | None = MAX_CHAINED_CLUSTER
    read_kwargs: dict[str, Any] | None = None
    write_kwargs: dict[str, Any] | None = None
