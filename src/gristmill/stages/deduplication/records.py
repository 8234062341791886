"""The records of removed documents."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from gristmill.stages.core import ProcessingStage
from gristmill.stages.deduplication.link import LABELS, STAYS
from gristmill.stages.deduplication.match import read_array
from gristmill.stages.deduplication.parts import IDENT, OWN_ID, Parts
from gristmill.storage import Folder
from gristmill.tasks import Task
from gristmill.tasks.arrow import int_array, number_array, numbers_of, one_array

Array = np.ndarray[Any, Any]

SIGNATURE = "signature"
"""The column of keys from which similarities are estimated."""
VERIFIED = "verified.npy"
"""Verified similarities: a row of documents, in order, and a row of Jaccard's index in millionths."""
ROW, PIECE = "row", "piece"
"""The row of the removed document in its part, and the number of the piece in it."""
ROWS_AT_ONCE = 100_000
LEAST_ROWS = 10_000
BYTES_EACH = 1200
"""Of memory, for each record that is made at a time."""


@dataclass
class RecordTask(Task[list[int]]):
    """Parts whose records are to be written."""

    data: list[int] = field(default_factory=list)
    removed: dict[str, int] = field(default_factory=dict)
    """The number of records by the name of the part: the result."""
    chained: int = 0
    """Documents estimated far below the threshold that share no band with the survivor."""
    met: int = 0
    """Documents as far below that share one."""


class PartRecords(ProcessingStage[RecordTask, RecordTask]):
    """Writes a Parquet file for each part with removed documents, or pieces of documents."""

    def __init__(self, parts: Parts, records: Folder, rows_at_once: int, own_ids: bool) -> None:
        self.name = "records"
        self.parts = parts
        self.records = records
        self.rows_at_once = rows_at_once
        self.idents = [IDENT, OWN_ID] if own_ids else [IDENT]

    def process(self, task: RecordTask) -> RecordTask:
        parts = self.parts
        stays = read_array(parts.folder, STAYS)
        done = RecordTask(task.data, task_id=task.task_id)
        pending: list[tuple[int, Array]] = []
        for part in task.data:
            begin, end = parts.starts[part], parts.starts[part + 1]
            own = np.arange(begin, end)
            gone = own[np.asarray(stays[begin:end]) != own]
            if len(gone):
                pending.append((part, gone))
            # many parts at a time: each lookup may read all the others
            if sum(len(rows) for _, rows in pending) >= self.rows_at_once:
                self._write(pending, stays, done)
                pending = []
        self._write(pending, stays, done)
        return done

    def _write(self, pending: Sequence[tuple[int, Array]], stays: Array, done: RecordTask) -> None:
        import pyarrow.parquet as pq

        if not pending:
            return
        gone = np.concatenate([rows for _, rows in pending])
        tables = []
        for at in range(0, len(gone), self.rows_at_once):
            some = gone[at : at + self.rows_at_once]
            tables.append(self._table(some, np.asarray(stays[some]), done))
        whole = pa.concat_tables(tables)
        begin = 0
        for part, rows in pending:
            sink = pa.BufferOutputStream()
            pq.write_table(whole.slice(begin, len(rows)), sink)
            begin += len(rows)
            name = self.parts.names[part]
            self.records.write(f"{name}.parquet", sink.getvalue())
            done.removed[name] = len(rows)

    def _table(self, gone: Array, stays: Array, done: RecordTask) -> pa.Table:
        """Return the records of removed rows and their survivors."""
        raise NotImplementedError

    def _ids(self, mine: pa.Table, theirs: pa.Table) -> dict[str, Any]:
        """Return the first columns of all records: the ids of the removed document and its survivor."""
        made = {"id": mine.column(IDENT), "survivor": theirs.column(IDENT)}
        if OWN_ID in self.idents:
            made |= {OWN_ID: mine.column(OWN_ID), f"survivor_{OWN_ID}": theirs.column(OWN_ID)}
        return made


class PieceRecords(PartRecords):
    """Records of lines or paragraphs."""

    def _table(self, gone: Array, stays: Array, done: RecordTask) -> pa.Table:
        mine = self.parts.take(gone, [*self.idents, PIECE, ROW])
        theirs = self.parts.take(stays, self.idents)
        return pa.table({**self._ids(mine, theirs), PIECE: mine.column(PIECE), ROW: mine.column(ROW)})


class DocumentRecords(PartRecords):
    """Records of documents; with similarities, unless documents are equal."""

    def __init__(
        self, parts: Parts, records: Folder, rows_at_once: int, own_ids: bool, bands: Sequence[str], far: float
    ) -> None:
        super().__init__(parts, records, rows_at_once, own_ids)
        self.bands = list(bands)
        """The columns that link documents; none if documents are equal."""
        self.far = far

    def _table(self, gone: Array, stays: Array, done: RecordTask) -> pa.Table:
        parts = self.parts
        labels = np.asarray(read_array(parts.folder, LABELS)[gone])
        columns = [*self.idents, SIGNATURE] if self.bands else self.idents
        mine = parts.take(gone, columns)
        theirs = parts.take(stays, columns)
        made = self._ids(mine, theirs)
        # with the policy "first" the survivor is the first of its cluster
        same = np.array_equal(labels, stays)
        made["cluster"] = made["survivor"] if same else parts.take(labels, [IDENT]).column(IDENT)
        if self.bands:
            similar = estimated(mine, theirs)
            low = np.flatnonzero(similar < self.far)
            chained = int(unlinked(parts, self.bands, gone[low], stays[low]).sum())
            done.chained += chained
            done.met += len(low) - chained
            made["jaccard_estimated"] = number_array(similar)
            made["jaccard_verified"] = _looked_up(parts.folder, gone)
        made[ROW] = int_array(parts.place(gone)[1])
        return pa.table(made)


def _looked_up(folder: Folder, documents: Array) -> pa.Array:
    """Return the verified similarity of each document, null where there is none."""
    verified = read_array(folder, VERIFIED) if folder.exists(VERIFIED) else np.zeros((2, 0), np.int64)
    if not verified.shape[1]:
        return pa.nulls(len(documents), pa.float64())
    at = np.minimum(np.searchsorted(verified[0], documents), verified.shape[1] - 1)
    return number_array(np.asarray(verified[1][at]) / 1e6, there=np.asarray(verified[0][at]) == documents)


def estimated(mine: pa.Table, theirs: pa.Table) -> Array:
    """Estimate the similarity of pairs of documents by their signatures."""
    from gristmill.kernels.signatures import estimated_jaccard

    similar: Array = estimated_jaccard(_bytes(mine), _bytes(theirs)).round(4)
    return similar


def unlinked(parts: Parts, bands: Sequence[str], documents: Array, others: Array) -> Array:
    """Return which documents share no band with the other one of the pair."""
    linked = np.zeros(len(documents), bool)
    if len(documents):
        mine, theirs = parts.take(documents, bands), parts.take(others, bands)
        for n in range(len(bands)):
            linked |= numbers_of(mine.column(n)) == numbers_of(theirs.column(n))
    return ~linked


def _bytes(table: pa.Table) -> Array:
    array = one_array(table.column(SIGNATURE))
    width = array.type.byte_width
    flat = np.frombuffer(array.buffers()[1], np.uint8, count=len(array) * width, offset=array.offset * width)
    return flat.reshape(len(array), width)


def rows_at_once(memory: int, workers: int) -> int:
    """Return how many records a worker makes at a time: many, as each lookup may read all parts."""
    return max(LEAST_ROWS, memory // (4 * workers * BYTES_EACH))


def groups_for(documents: int, workers: int) -> int:
    """Return the number of groups of parts."""
    return max(1, min(4 * workers, -(-documents // ROWS_AT_ONCE)))


def tasks_for(parts: Parts, workers: int) -> list[RecordTask]:
    """Return the parts in groups."""
    numbers = list(range(len(parts)))
    size = max(1, -(-len(numbers) // groups_for(parts.documents, workers)))
    return [RecordTask(numbers[i : i + size]) for i in range(0, len(numbers), size)]


def counted(done: Sequence[RecordTask]) -> dict[str, int]:
    return {name: n for task in done for name, n in task.removed.items()}
