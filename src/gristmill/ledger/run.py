"""The account of a run in the driver."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from gristmill.ledger.commits import CommitLog
from gristmill.ledger.entry import Entry
from gristmill.tasks import Written
from gristmill.tasks.names import block_of

MOST_CHANGED = 100
"""Changed input files that are remembered."""


class RunLedger:
    """Adds up the reports of workers by block, and commits a block when all of its tasks have ended.

    Each task `begin`s and `end`s. A block with cancelled tasks is not committed, a block with failed documents only if
    failures are ignored.
    """

    def __init__(self, log: CommitLog | None = None) -> None:
        self.log = log
        self.ignore_failures = False
        self.files: dict[str, FileAccount] = {}
        """By source file; files that share a block are one."""
        self._whole = Entry()
        self.blocks: set[int] = set()
        """Done blocks."""
        self.resumed = 0
        """Blocks that earlier runs have done."""
        self.documents_resumed = 0
        """Documents of the input that earlier runs have read."""
        self.sizes: Sequence[int] = ()
        """The bytes of each block of the input, by its number; empty if they are not known."""
        self.bytes_total = 0
        self.blocks_total = 0
        """Blocks of the input, those of earlier runs included."""
        self.bytes_done = 0
        self.bytes_resumed = 0
        self.problems: list[str] = []
        """Descriptions of counts that do not add up."""
        self.changed_inputs: list[str] = []
        """Descriptions of the first input files that changed between planning and reading."""
        self.under_way: dict[int, UnderWay] = {}
        """By worker, the progress of its unit: for views, not for the log."""
        self._open: dict[int, Entry] = {}
        self._live: Counter[int] = Counter()
        self._spoilt: set[int] = set()
        self._partly: dict[int, str] = {}
        """Blocks with a task that failed after a part of it was passed on, and why."""

    def resume(self, block: int, entry: Entry) -> None:
        """Count a block that an earlier run has committed."""
        self.resumed += block not in self.blocks
        self.documents_resumed += entry.documents
        self._count(block, entry)
        self.bytes_resumed = self.bytes_done

    @property
    def undone(self) -> int:
        """Blocks that were begun and not done."""
        return len(self._spoilt | set(self._live))

    def begin(self, label: str) -> None:
        self._live[block_of(label)] += 1

    def add(self, entries: Mapping[int, dict[str, Any]]) -> None:
        for block, plain in entries.items():
            self._open.setdefault(block, Entry()).add(Entry.of_plain(plain))

    def unread(self, label: str, files: list[str]) -> None:
        """Count a block that could not be read at all: one record of each of its files."""
        self._open.setdefault(block_of(label), Entry()).read.update(files)

    def spoil(self, label: str) -> None:
        """Mark a block as not done: its outcome is unknown."""
        self._spoilt.add(block_of(label))

    def input_changed(self, label: str, change: str) -> None:
        """Mark a block whose file changed as not done, even if failures are ignored."""
        self.spoil(label)
        if change not in self.changed_inputs and len(self.changed_inputs) < MOST_CHANGED:
            self.changed_inputs.append(change)

    def fail(self, label: str, reason: str, documents: int, partly: bool = False) -> None:
        """Count documents of a block that failed; ``partly`` if some of them were passed on."""
        block = block_of(label)
        entry = self._open.setdefault(block, Entry())
        entry.failed += max(1, documents)
        if partly:
            self._partly.setdefault(block, reason)
        else:
            entry.err(reason, documents)
        if not self.ignore_failures:
            self._spoilt.add(block)

    def wrote(self, label: str, file: Written) -> None:
        """Add a file that the driver wrote for a block."""
        self._open.setdefault(block_of(label), Entry()).add_file(file)

    def end(self, label: str, cancelled: bool) -> None:
        block = block_of(label)
        if cancelled:
            self._spoilt.add(block)
        self._live[block] -= 1
        if self._live[block]:
            return
        del self._live[block]
        entry = self._open.pop(block, Entry())
        if block in self._partly:
            entry.err(self._partly.pop(block), max(0, entry.missing()))
        if block in self._spoilt:
            return
        entry.only_last_files()
        self._count(block, entry)
        if self.log is not None and not entry.imbalance():
            self.log.add(block, entry)

    def _count(self, block: int, entry: Entry) -> None:
        if block in self.blocks:
            return  # committed by two runs at the same time, with the same bytes
        self.blocks.add(block)
        self.bytes_done += self._size(block)
        if words := entry.imbalance():
            self.problems.append(f"block {block} of {_name(entry)}: {words}")
        self._whole.add(replace(entry, files=[]))
        self.files.setdefault(_name(entry), FileAccount()).add(entry)

    def so_far(self) -> tuple[int, int, int]:
        """Return documents read and kept, and bytes of the input, including unfinished blocks."""
        open_, under_way = self._open.items(), self.under_way.values()
        read = self._whole.documents + sum(entry.documents for _, entry in open_) + sum(x.read for x in under_way)
        kept = self._whole.kept + sum(entry.kept for _, entry in open_) + sum(x.kept for x in under_way)
        streamed = sum(min(entry.bytes, self._size(block)) for block, entry in open_)
        parts = sum(int(x.share * self._size(x.block)) for x in under_way)
        return read, kept, self.bytes_done + streamed + parts

    def _size(self, block: int) -> int:
        return self.sizes[block] if block < len(self.sizes) else 0

    def after(self, first: RunLedger) -> RunLedger:
        """Return the account of two phases. This is the second one: it read what the first kept."""
        both = RunLedger(self.log)
        both._whole.add(first._whole)
        both._whole.kept = 0
        both._whole.add(replace(self._whole, read=Counter()))
        both.blocks, both.resumed, both.blocks_total = self.blocks, self.resumed, self.blocks_total
        both.documents_resumed = first.documents_resumed
        both.problems = [*first.problems, *self.problems]
        both._spoilt, both._live = self._spoilt, self._live
        both.changed_inputs = [*first.changed_inputs, *self.changed_inputs]
        for part, keeps in ((first, False), (self, True)):
            for name, account in part.files.items():
                whole = both.files.setdefault(name, FileAccount())
                whole.join(account if keeps else replace(account, kept=0), is_read=not keeps)
        return both

    @classmethod
    def of_plain(cls, plain: dict[str, Any]) -> RunLedger:
        """Return the ledger of plain values."""
        ledger = cls()
        ledger.blocks = set(range(plain["blocks"]))
        ledger._whole = Entry.of_plain({**plain["total"], "files": []})
        ledger.files = {name: FileAccount(**account) for name, account in plain["files"].items()}
        ledger.documents_resumed = ledger.total().documents
        return ledger

    def total(self) -> Entry:
        return self._whole

    def plain(self) -> dict[str, Any]:
        """Return plain values."""
        whole = self._whole.plain()
        del whole["files"]
        files = {name: account.plain() for name, account in sorted(self.files.items())}
        return {"blocks": len(self.blocks), "total": whole, "files": files}


@dataclass(frozen=True, slots=True)
class UnderWay:
    """The progress of a unit that a worker has not reported yet."""

    block: int
    read: int
    kept: int
    share: float
    """Of the block, from 0 to 1."""


@dataclass(slots=True)
class FileAccount:
    """Counts of the documents of a source file: small, as there may be millions of files."""

    read: int = 0
    made: int = 0
    kept: int = 0
    dropped: int = 0
    merged: int = 0
    errored: int = 0

    def add(self, entry: Entry) -> None:
        self.read += entry.documents
        self.made += entry.made
        self.kept += entry.kept
        self.dropped += entry.dropped.total()
        self.merged += entry.merged
        self.errored += entry.errored.total()

    def join(self, other: FileAccount, is_read: bool) -> None:
        """Add the counts of another phase; ``is_read`` if its read documents count."""
        for f in fields(self):
            if is_read or f.name != "read":
                setattr(self, f.name, getattr(self, f.name) + getattr(other, f.name))

    @property
    def balances(self) -> bool:
        return self.read + self.made == self.kept + self.dropped + self.merged + self.errored

    def plain(self) -> dict[str, int]:
        return {f.name: getattr(self, f.name) for f in fields(self)}


def _name(entry: Entry) -> str:
    names = sorted(entry.read)
    if not names:
        return "no file"
    return names[0] if len(names) == 1 else f"{names[0]} to {names[-1]} ({len(names)} files)"
