"""The removal of duplicates after the barrier."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from gristmill import fast_json
from gristmill.lazy import np
from gristmill.stages.core import ProcessingStage
from gristmill.stages.spool import part_of
from gristmill.stages.text.io.dropped_columns import take_out_dropped
from gristmill.storage import Folder
from gristmill.tasks import DocumentBatch
from gristmill.tasks.document import ID

if TYPE_CHECKING:
    import pyarrow as pa

REMOVED = "removed.json"
"""By the name of the part: its number of documents, if known, and its number of removals."""
UNKNOWN = -1


class Removal(ProcessingStage[DocumentBatch, DocumentBatch]):
    """Removes what the records name, by row; ids are checked."""

    loads = ("pyarrow.parquet",)
    accounts_for_documents = True
    split_on_failure = False

    def __init__(self, name: str, folder: Folder, records: Folder) -> None:
        self.name = name
        self.folder = folder
        self.records = records
        self._counts: dict[str, list[int]] = {}

    def setup(self, worker_metadata: Any = None) -> None:
        self._counts = fast_json.loads(self.folder.read(REMOVED))

    def records_of(self, task: DocumentBatch) -> pa.Table | None:
        """Return the records of a batch; None if nothing of it is removed. Raise if the batch has changed."""
        part, documents = part_of(task), task.num_items
        if not documents and part not in self._counts:
            return None  # no document of it had keys
        if part not in self._counts or self._counts[part][0] not in (UNKNOWN, documents):
            raise ValueError(
                f"{part} with {documents} documents was not there when duplicates were looked for: "
                "start over with --fresh."
            )
        count = self._counts[part][1]
        if not count:
            return None
        import pyarrow as pa
        import pyarrow.parquet as pq

        from gristmill.tasks.arrow import int_array, numbers_of

        table = pq.ParquetFile(pa.BufferReader(self.records.read(f"{part}.parquet"))).read()
        if table.num_rows != count:
            raise ValueError(f"the records of {part} are not complete: start over with --fresh.")
        rows = numbers_of(table.column("row"))
        if rows[-1] >= documents:
            raise ValueError(f"the records of {part} do not fit its documents: start over with --fresh.")
        if task.data.column(ID).take(int_array(rows)).to_pylist() != table.column("id").to_pylist():
            raise ValueError(f"the records of {part} are of other documents: start over with --fresh.")
        return table


class RemoveDuplicates(Removal, builtin=True):
    """Removes documents, and the columns ``dropped`` of the others."""

    dropped: Sequence[str] = ()

    def __init__(self, name: str, reason: str, folder: Folder, records: Folder, dropped: Sequence[str] = ()) -> None:
        super().__init__(name, folder, records)
        self.reason = reason
        if dropped:  # otherwise no attribute: it would be a difference to runs that earlier versions began
            self.dropped = list(dropped)

    def removes(self) -> list[str]:
        return list(self.dropped)

    def inputs(self) -> tuple[list[str], list[str]]:
        return ["data"], []

    def outputs(self) -> tuple[list[str], list[str]]:
        return ["data"], []

    def process(self, task: DocumentBatch) -> DocumentBatch:
        table, before = self.records_of(task), task.columns
        if self.dropped:
            task.data = task.data.drop_columns([name for name in self.dropped if name in before])
        left = task if table is None else self._without(task, table)
        if self.dropped:
            take_out_dropped(left, before)
        return left

    def _without(self, task: DocumentBatch, table: pa.Table) -> DocumentBatch:
        from gristmill.tasks.arrow import numbers_of

        mask = np.ones(task.num_items, bool)
        mask[numbers_of(table.column("row"))] = False
        scores = table.column("similarity").to_pylist() if "similarity" in table.column_names else None
        if "jaccard_verified" in table.column_names:
            estimated = table.column("jaccard_estimated").to_pylist()
            verified = table.column("jaccard_verified").to_pylist()
            scores = [e if v is None else v for v, e in zip(verified, estimated, strict=True)]
        return task.keep(mask, reason=self.reason, scores=scores)
