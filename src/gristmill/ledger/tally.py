"""The accounts of stages, counted in a worker."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gristmill.ledger.entry import UNSPECIFIED, Entry
from gristmill.ledger.excluded import ExcludedFiles
from gristmill.stages.protocols import Source
from gristmill.tasks import Account, DocumentBatch, Dropped, Task
from gristmill.tasks.document import ID
from gristmill.tasks.names import block_of

if TYPE_CHECKING:
    import pyarrow as pa

    from gristmill.stages.core import ProcessingStage


class LostIdentity(Exception):
    """A stage returned documents without the column of their ids."""


@dataclass
class Before:
    """The input of a stage. A stage may change the task in place, but not its table."""

    label: str
    is_accounted: bool
    """Whether the task holds documents with ids."""
    table: pa.Table | None
    """None if it does not, or if the stage accounts for documents itself."""


class Tally:
    """The account of the stages of one step since the last `take`."""

    def __init__(self, is_last_step: bool) -> None:
        self._is_last_step = is_last_step
        self._entries: dict[int, Entry] = {}

    def take(self) -> dict[int, dict[str, Any]]:
        """Return the entries by block as plain values, and start again."""
        taken = {block: {**entry.plain(), "bytes": entry.bytes} for block, entry in self._entries.items()}
        self._entries = {}
        return taken

    def so_far(self) -> tuple[int, int]:
        """Return the documents read and kept since the last `take`."""
        entries = self._entries.values()
        return sum(entry.documents for entry in entries), sum(entry.kept for entry in entries)

    def reset(self) -> None:
        self._entries = {}

    def entry(self, block: int) -> Entry:
        return self._entries.setdefault(block, Entry())

    @staticmethod
    def before(task: Task[Any], is_compared: bool = True) -> Before:
        """Remember the input of a stage; ``is_compared`` if its output is compared with it."""
        is_accounted = isinstance(task, DocumentBatch) and task.has_ids
        return Before(task.task_id, is_accounted, task.data if is_accounted and is_compared else None)

    def stage(
        self,
        stage: ProcessingStage[Any, Any],
        place: int,
        is_last: bool,
        before: Before,
        excluded: ExcludedFiles | None,
    ) -> StageTally:
        """Return the account of a call of a stage; ``place`` is its number in the step."""
        kind = _OwnAccount if before.table is None else _Compared
        return kind(self, stage, place, is_last and self._is_last_step, before, excluded)


class StageTally:
    """The account of one call of a stage: `result` for each task that it returned, in order, then `end`."""

    def __init__(
        self,
        tally: Tally,
        stage: ProcessingStage[Any, Any],
        place: int,
        is_last: bool,
        before: Before,
        excluded: ExcludedFiles | None,
    ) -> None:
        self._tally = tally
        self._place = place
        self._block = block_of(before.label)
        self._stage = stage
        self._is_last = is_last
        self._before = before
        self._excluded = excluded

    def result(self, task: Task[Any]) -> None:
        """Count a task that the stage returned."""
        account = task.take_account() or Account()
        if isinstance(task, DocumentBatch):
            if self._before.is_accounted and not task.has_ids:
                raise LostIdentity(
                    f"{self._stage.name!r} returned documents without the column {ID!r}, by which gristmill follows "
                    "them. Drop columns by name, frame.drop(columns=[...]), or select this one too; drop documents "
                    "with batch.keep(mask, reason)"
                )
            source = isinstance(self._stage, Source) and not self._stage.builtin
            if source and task.num_items and not (task.has_ids and account.read):
                raise LostIdentity(
                    f"{self._stage.name!r} returned documents without ids, or did not count them. A source gives each "
                    f"document an id in the column {ID!r}, and counts it in batch.account.read by the name of its "
                    "source: batch.account.read[name] = batch.num_items"
                )
            if self._is_last:
                self._entry.kept += task.num_items
        self._note(account)
        self._count(task, account)

    def end(self) -> None:
        """Count what is known only after the last task."""

    def _count(self, task: Task[Any], account: Account) -> None:
        raise NotImplementedError

    @property
    def _entry(self) -> Entry:
        return self._tally.entry(self._block)

    def _note(self, account: Account) -> None:
        entry, name = self._entry, self._stage.name
        entry.read.update(account.read)
        entry.bytes += account.bytes_read
        for record in account.bad:
            entry.err(record.reason)
            entry.failed += record.is_failure
        for key, n in account.counters.items():
            entry.counters[name, key] += n
        for key, value in account.notes.items():
            entry.note(name, key, value)
        for file in account.written:
            entry.add_file(file)
        if account.scored and self._excluded is not None and self._excluded.scores is not None:
            self._excluded.scores.scored(self._before.label, self._place, self._stage, account.scored)
        for dropped in account.dropped:
            self._drop(dropped)
        if self._excluded is not None:
            self._excluded.bad(self._before.label, name, account.bad)

    def _drop(self, dropped: Dropped) -> None:
        name = self._stage.name
        self._entry.dropped.update((name, reason) for reason in dropped.reasons)
        if self._excluded is not None:
            self._excluded.dropped(self._before.label, name, self._place, dropped)


class _OwnAccount(StageTally):
    """For stages that account for every document themselves."""

    def _count(self, task: Task[Any], account: Account) -> None:
        entry = self._entry
        entry.made += account.made
        entry.merged += account.merged
        if self._before.is_accounted and not isinstance(task, DocumentBatch):
            entry.kept += sum(file.rows for file in account.written)


class _Compared(StageTally):
    """For other stages: ids before and after are compared."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._returned: Counter[str] = Counter()
        self._reported: Counter[str] = Counter()
        self._merged = 0
        self._left = False
        """Whether documents became tasks of another kind: files, images."""

    def _count(self, task: Task[Any], account: Account) -> None:
        self._merged += account.merged
        for dropped in account.dropped:
            self._reported.update(dropped.rows.column(ID).to_pylist())
        if isinstance(task, DocumentBatch):
            _name_made(task, f"{self._before.label}/{self._stage.name}/{self._returned.total()}")
            self._returned.update(task.data.column(ID).to_pylist())
        else:
            self._left = True

    def end(self) -> None:
        table = self._before.table
        assert table is not None
        given = table.column(ID).to_pylist()
        there = Counter(given)
        gone = there - self._returned - self._reported
        if self._left:
            self._entry.kept += gone.total()
            return
        merged = min(self._merged, gone.total())
        self._entry.merged += merged
        self._entry.made += (self._returned + self._reported - there).total()
        lost = _rows_of(table, given, gone).slice(merged)
        if lost.num_rows:
            self._drop(Dropped(lost, [UNSPECIFIED] * lost.num_rows))


def _rows_of(table: pa.Table, given: list[Any], wanted: Counter[Any]) -> pa.Table:
    from gristmill.tasks.arrow import int_array

    left = Counter(wanted)
    rows = []
    for row, ident in enumerate(given):
        if left[ident] > 0:
            left[ident] -= 1
            rows.append(row)
    return table.take(int_array(rows))


def _name_made(task: DocumentBatch, prefix: str) -> None:
    """Give ids to documents that a stage made without one."""
    from gristmill.tasks.arrow import string_array

    column = task.data.column(ID)
    if not column.null_count:
        return
    ids = [ident if ident is not None else f"{prefix}/{row}" for row, ident in enumerate(column.to_pylist())]
    where = task.data.column_names.index(ID)
    task.data = task.data.set_column(where, ID, string_array(ids))
