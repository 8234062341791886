"""Documents that are collected until there are enough for a batch, with the account of each batch."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc

from gristmill.lazy import Array
from gristmill.stages.text.io.reader.choice import NOT_SAMPLED, Choice
from gristmill.tasks import Account, BadRecord, DocumentBatch
from gristmill.tasks.arrow import int_array

SHOWN_BYTES = 4096
"""How much of a bad record is kept."""


def ids(path: str, positions: Array) -> pa.Array:
    """``<path>#<position>`` for each position."""
    numbers = int_array(positions).cast(pa.large_string())
    return pc.binary_replace_slice(numbers, 0, 0, f"{path}#")


class BatchBuilder:
    """The base of `Records` and `RowGroups`: it keeps the account of the next batch."""

    def __init__(self, note_read: Callable[[int], None] | None = None) -> None:
        self.account = Account()
        self._note_read = note_read

    def add_bad(self, path: str, position: int, reason: str, raw: bytes = b"") -> None:
        """Count a record, or a part of a file, that cannot be read."""
        self.account.read[path] += 1
        self.account.bad.append(BadRecord(path, position, reason, raw[:SHOWN_BYTES]))

    def take(self, choice: Choice, positions: Array) -> Array:
        """A mask of the records at these positions that are taken. Others that are not in the sample are counted."""
        mask, skipped = choice.take(positions)
        if skipped:
            self.account.counters[NOT_SAMPLED] += skipped
        return mask

    def report_progress(self) -> None:
        if self._note_read is not None:
            self._note_read(self.account.read.total())

    def batch_of(self, table: pa.Table) -> DocumentBatch:
        """A batch with the account, which starts again."""
        batch = DocumentBatch(data=table)
        batch.account, self.account = self.account, Account()
        return batch
