"""The removal of duplicate images after the barrier, and of images that could not be read before it."""

from __future__ import annotations

from typing import Any

from gristmill import fast_json
from gristmill.lazy import np
from gristmill.stages.deduplication.remove import RemoveDuplicates
from gristmill.stages.spool import part_of
from gristmill.tasks import DocumentBatch

UNREADABLE = "unreadable.json"
"""By the name of the part, then by the reason: the rows of images that cannot be read."""


class RemoveDuplicateImages(RemoveDuplicates, builtin=True):
    """Removes the images that the records name, and reports those that cannot be read as bad records."""

    _unreadable: dict[str, dict[str, list[int]]]

    def setup(self, worker_metadata: Any = None) -> None:
        super().setup(worker_metadata)
        self._unreadable = fast_json.loads(self.folder.read(UNREADABLE))

    def process(self, task: DocumentBatch) -> DocumentBatch:
        from gristmill.images.pictures import without_bad
        from gristmill.tasks.arrow import numbers_of

        count = task.num_items
        reasons = {
            row: reason for reason, rows in self._unreadable.get(part_of(task), {}).items() for row in sorted(rows)
        }
        if not reasons:
            return super().process(task)
        mask = np.ones(count, bool)
        table = self.records_of(task)
        if table is not None:
            mask[numbers_of(table.column("row"))] = False
            task = self._without(task, table)
        left = np.cumsum(mask) - 1
        return without_bad(task, {int(left[row]): reason for row, reason in sorted(reasons.items())})
