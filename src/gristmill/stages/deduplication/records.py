"""What is written down of every document that is removed."""

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
"""The column of keys from which similarities are estimated, if there is one."""
VERIFIED = "verified.npy"
"""Verified similarities: in one row the numbers of documents, in order, in the other millionths of Jaccard's index."""
ROW, PIECE = "row", "piece"
"""Which of the documents of a part is removed, or which piece of it."""
ROWS_AT_ONCE = 100_000
LEAST_ROWS = 10_000
BYTES_EACH = 1200
"""Of memory, for each document that is written down at the same time as others."""


@dataclass
class RecordTask(Task[list[int]]):
    """Parts of which it is to be written down what is removed."""

    data: list[int] = field(default_factory=list)
    removed: dict[str, int] = field(default_factory=dict)
    """By the name of the part; what comes back."""
    chained: int = 0
    """Documents that are far below the threshold by the estimate, and share no band with the one that stays."""
    met: int = 0
    """Those that are as far below it and do share one."""


class PartRecords(ProcessingStage[RecordTask, RecordTask]):
    """Writes a Parquet file for each part of which something is removed: documents, or pieces of them."""

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
        waiting: list[tuple[int, Array]] = []
        for part in task.data:
            begin, end = parts.starts[part], parts.starts[part + 1]
            own = np.arange(begin, end)
            gone = own[np.asarray(stays[begin:end]) != own]
            if len(gone):
                waiting.append((part, gone))
            # many parts at a time: each look may go to all the others
            if sum(len(rows) for _, rows in waiting) >= self.rows_at_once:
                self._write(waiting, stays, done)
                waiting = []
        self._write(waiting, stays, done)
        return done

    def _write(self, waiting: Sequence[tuple[int, Array]], stays: Array, done: RecordTask) -> None:
        import pyarrow.parquet as pq

        if not waiting:
            return
        gone = np.concatenate([rows for _, rows in waiting])
        tables = []
        for at in range(0, len(gone), self.rows_at_once):
            some = gone[at : at + self.rows_at_once]
            tables.append(self._table(some, np.asarray(stays[some]), done))
        whole = pa.concat_tables(tables)
        begin = 0
        for part, rows in waiting:
            sink = pa.BufferOutputStream()
            pq.write_table(whole.slice(begin, len(rows)), sink)
            begin += len(rows)
            name = self.parts.names[part]
            self.records.write(f"{name}.parquet", sink.getvalue())
            done.removed[name] = len(rows)

    def _table(self, gone: Array, stays: Array, done: RecordTask) -> pa.Table:
        """The records of what is removed, each with what stays in its place."""
        raise NotImplementedError

    def _who(self, mine: pa.Table, theirs: pa.Table) -> dict[str, Any]:
        """Who goes and who stays: first columns of all records."""
        made = {"id": mine.column(IDENT), "survivor": theirs.column(IDENT)}
        if OWN_ID in self.idents:
            made |= {OWN_ID: mine.column(OWN_ID), f"survivor_{OWN_ID}": theirs.column(OWN_ID)}
        return made


class PieceRecords(PartRecords):
    """Of lines, or paragraphs."""

    def _table(self, gone: Array, stays: Array, done: RecordTask) -> pa.Table:
        mine = self.parts.take(gone, [*self.idents, PIECE, ROW])
        theirs = self.parts.take(stays, self.idents)
        return pa.table({**self._who(mine, theirs), PIECE: mine.column(PIECE), ROW: mine.column(ROW)})


class DocumentRecords(PartRecords):
    """Of documents; with similarities, unless they are equal."""

    def __init__(
        self, parts: Parts, records: Folder, rows_at_once: int, own_ids: bool, bands: Sequence[str], far: float
    ) -> None:
        super().__init__(parts, records, rows_at_once, own_ids)
        self.bands = list(bands)
        """The columns by which documents were linked; none if they are equal."""
        self.far = far

    def _table(self, gone: Array, stays: Array, done: RecordTask) -> pa.Table:
        parts = self.parts
        labels = np.asarray(read_array(parts.folder, LABELS)[gone])
        columns = [*self.idents, SIGNATURE] if self.bands else self.idents
        mine = parts.take(gone, columns)
        theirs = parts.take(stays, columns)
        made = self._who(mine, theirs)
        # whoever stays is the first of its cluster, unless a policy says otherwise
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
    """The similarity of each document, null where it was not verified."""
    verified = read_array(folder, VERIFIED) if folder.exists(VERIFIED) else np.zeros((2, 0), np.int64)
    if not verified.shape[1]:
        return pa.nulls(len(documents), pa.float64())
    at = np.minimum(np.searchsorted(verified[0], documents), verified.shape[1] - 1)
    return number_array(np.asarray(verified[1][at]) / 1e6, there=np.asarray(verified[0][at]) == documents)


def estimated(mine: pa.Table, theirs: pa.Table) -> Array:
    """The similarity of pairs of documents by their signatures."""
    from gristmill.kernels.signatures import estimated_jaccard

    similar: Array = estimated_jaccard(_bytes(mine), _bytes(theirs)).round(4)
    return similar


def unlinked(parts: Parts, bands: Sequence[str], documents: Array, others: Array) -> Array:
    """Which of the documents share no band with the other one of each."""
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
    """How many records each of some workers makes at a time: each look may go to all parts, so the more the better."""
    return max(LEAST_ROWS, memory // (4 * workers * BYTES_EACH))


def groups_for(documents: int, workers: int) -> int:
    """In how many groups parts are looked at."""
    return max(1, min(4 * workers, -(-documents // ROWS_AT_ONCE)))


def tasks_for(parts: Parts, workers: int) -> list[RecordTask]:
    """The parts in groups."""
    numbers = list(range(len(parts)))
    size = max(1, -(-len(numbers) // groups_for(parts.documents, workers)))
    return [RecordTask(numbers[i : i + size]) for i in range(0, len(numbers), size)]


def counted(done: Sequence[RecordTask]) -> dict[str, int]:
    return {name: n for task in done for name, n in task.removed.items()}
