"""The account of a run as it grows, in the driver."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from gristmill.ledger.commits import CommitLog
from gristmill.ledger.entry import Entry, block_of, total


class RunLedger:
    """Adds up what workers report by block, and commits a block when all that became of it has ended.

    A task of a block `begin`s when it exists and `end`s when nothing more can come of it. A block with tasks that were
    cancelled is not committed, and one with failed documents only if failures are ignored.
    """

    def __init__(self, log: CommitLog | None = None) -> None:
        self.log = log
        self.ignore_failures = False
        self.files: dict[str, Entry] = {}
        """By source file; files that are read in one block together are one."""
        self.blocks: set[int] = set()
        """Those that are done."""
        self.resumed = 0
        """Blocks that an earlier run has done."""
        self.problems: list[str] = []
        """What does not add up, in words."""
        self._open: dict[int, Entry] = {}
        self._live: Counter[int] = Counter()
        self._spoilt: set[int] = set()

    def resume(self, block: int, entry: Entry) -> None:
        """A block that an earlier run has committed."""
        self.resumed += block not in self.blocks
        self._count(block, entry)

    def begin(self, label: str) -> None:
        self._live[block_of(label)] += 1

    def add(self, entries: Mapping[int, dict[str, Any]]) -> None:
        for block, plain in entries.items():
            self._open.setdefault(block, Entry()).add(Entry.of_plain(plain))

    def unread(self, label: str, files: list[str]) -> None:
        """A block could not be read at all: it stands for one record of each of its files."""
        self._open.setdefault(block_of(label), Entry()).read.update(files)

    def fail(self, label: str, reason: str, documents: int) -> None:
        block = block_of(label)
        self._open.setdefault(block, Entry()).errored[reason] += documents
        if not self.ignore_failures:
            self._spoilt.add(block)

    def end(self, label: str, cancelled: bool) -> None:
        block = block_of(label)
        if cancelled:
            self._spoilt.add(block)
        self._live[block] -= 1
        if self._live[block]:
            return
        del self._live[block]
        entry = self._open.pop(block, Entry())
        if block in self._spoilt:
            return
        self._count(block, entry)
        if self.log is not None:
            self.log.add(block, entry)

    def _count(self, block: int, entry: Entry) -> None:
        if block in self.blocks:
            return  # committed twice by two runs at the same time: to the same bytes
        self.blocks.add(block)
        if words := entry.imbalance():
            self.problems.append(f"block {block} of {_name(entry)}: {words}")
        files = self.files.setdefault(_name(entry), Entry())
        files.add(replace(entry, files=[]))

    def total(self) -> Entry:
        return total(self.files.values())

    def plain(self) -> dict[str, Any]:
        """All of it as plain values."""
        files = {name: _without_files(entry) for name, entry in sorted(self.files.items())}
        return {"blocks": len(self.blocks), "total": _without_files(self.total()), "files": files}


def _name(entry: Entry) -> str:
    names = list(entry.read)
    if not names:
        return "no file"
    return names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"


def _without_files(entry: Entry) -> dict[str, Any]:
    plain = entry.plain()
    del plain["files"]
    return plain
