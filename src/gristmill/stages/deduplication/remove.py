"""Behind the cut: what was decided to go goes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gristmill import fast_json
from gristmill.lazy import np
from gristmill.stages.core import ProcessingStage
from gristmill.stages.spool import part_of
from gristmill.storage import Folder
from gristmill.tasks import DocumentBatch

REMOVED = "removed.json"
"""By the name of the part: how many documents it has, or -1 if that is not known, and how many things are removed."""


def counts_of(counts: Mapping[str, Sequence[int]], part: str, documents: int) -> int:
    """How many things are removed from a part. A part that is not known, or is not what it was, is an error."""
    if part not in counts or counts[part][0] not in (-1, documents):
        raise ValueError(
            f"{part} with {documents} documents was not there when duplicates were looked for: start over with --fresh."
        )
    return counts[part][1]


class RemoveDuplicates(ProcessingStage[DocumentBatch, DocumentBatch]):
    """Takes documents out that the records name. They are by place in the batch, and checked by id."""

    loads = ("pyarrow.parquet",)
    split_on_failure = False

    def __init__(self, name: str, reason: str, folder: Folder, records: Folder) -> None:
        self.name = name
        self.reason = reason
        self.folder = folder
        self.records = records
        self._counts: dict[str, list[int]] = {}

    def inputs(self) -> tuple[list[str], list[str]]:
        return ["data"], []

    def outputs(self) -> tuple[list[str], list[str]]:
        return ["data"], []

    def setup(self, worker_metadata: Any = None) -> None:
        self._counts = fast_json.loads(self.folder.read(REMOVED))

    def process(self, task: DocumentBatch) -> DocumentBatch:
        import pyarrow as pa
        import pyarrow.parquet as pq

        from gristmill.tasks.document import ID

        part = part_of(task)
        count = counts_of(self._counts, part, task.num_items)
        if not count:
            return task
        columns = ["id", "row"]
        table = pq.read_table(pa.BufferReader(self.records.read(f"{part}.parquet")))
        rows = table.column("row").to_numpy()
        there = task.selection()[0].column(ID)
        if len(rows) != count or (len(rows) and rows[-1] >= task.num_items):
            raise ValueError(f"the records of {part} do not fit its documents: start over with --fresh.")
        if there.take(pa.array(rows)).to_pylist() != table.column(columns[0]).to_pylist():
            raise ValueError(f"the records of {part} are of other documents: start over with --fresh.")
        mask = np.ones(task.num_items, bool)
        mask[rows] = False
        names = table.column_names
        scores = None
        if "jaccard_verified" in names:
            estimated = table.column("jaccard_estimated").to_pylist()
            verified = table.column("jaccard_verified").to_pylist()
            scores = [e if v is None else v for v, e in zip(verified, estimated, strict=True)]
        return task.keep(mask, reason=self.reason, scores=scores)
