"""The account of the documents of one block."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from gristmill.ledger.files import Stamp
from gristmill.tasks import Written

MOST_REASONS = 1000
"""Different reasons that are counted one by one: this bounds the size of an account."""
MOST_VALUES = 100
"""Different values of a setting that are noted."""
OTHER = "other reasons"
_NUMBER = re.compile(r"0x[0-9a-fA-F]+|(?<!UTF-)(?<!\d)\d+")
UNSPECIFIED = "unspecified"
"""The reason of documents that a stage dropped without one."""


@dataclass
class Entry:
    """Counts of documents. ``read + made == kept + dropped + merged + errored`` once a block is done."""

    read: Counter[str] = field(default_factory=Counter)
    """By source file."""
    bytes: int = 0
    """Bytes of the input read so far: for views, not for the log."""
    made: int = 0
    kept: int = 0
    merged: int = 0
    errored: Counter[str] = field(default_factory=Counter)
    """By reason."""
    dropped: Counter[tuple[str, str]] = field(default_factory=Counter)
    """By stage and reason."""
    counters: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Counters of stages: by stage and name."""
    notes: dict[tuple[str, str], list[int]] = field(default_factory=dict)
    """Settings that stages have found out and used: by stage and name, the different values in ascending order."""
    failed: int = 0
    """Errored documents on which a stage failed: another attempt may succeed."""
    files: list[tuple[str, int, int, str]] = field(default_factory=list)
    """Written files: name, documents, bytes, checksum."""

    def err(self, reason: str, documents: int = 1) -> None:
        """Count documents that could not be read or processed. Numbers in the reason are replaced, to group reasons."""
        self.errored[_NUMBER.sub("N", reason)] += documents

    def note(self, stage: str, name: str, *values: int) -> None:
        """Add values of a setting that a stage used."""
        self.notes[stage, name] = sorted({*self.notes.get((stage, name), ()), *values})[:MOST_VALUES]

    def add(self, other: Entry) -> None:
        # `update`, not `+`, keeps files without documents
        self.read.update(other.read)
        self.errored.update(other.errored)
        self.dropped.update(other.dropped)
        self.counters.update(other.counters)
        for (stage, name), values in other.notes.items():
            self.note(stage, name, *values)
        _cap(self.errored, MOST_REASONS, OTHER)
        _cap(self.dropped, MOST_REASONS, ("", OTHER))
        self.bytes += other.bytes
        self.made += other.made
        self.kept += other.kept
        self.merged += other.merged
        self.failed += other.failed
        self.files += other.files

    def add_file(self, file: Written) -> None:
        """Add a written file. One without a name is skipped."""
        if file.name:
            self.files.append((file.name, file.rows, file.size, file.checksum))

    def stamps(self) -> Iterator[Stamp]:
        """Return the stamps of the written files."""
        return (Stamp(name, size, checksum) for name, _, size, checksum in self.files)

    def replace_files(self, written: Mapping[str, Written]) -> bool:
        """Update the stamps of files that were written again. Return whether there are any."""
        again = [written[name] for name, *_ in self.files if name in written]
        for file in again:
            self.add_file(file)
        self.only_last_files()
        return bool(again)

    def only_last_files(self) -> None:
        """Keep the last of files with the same name: a repeated attempt writes the same names again."""
        self.files = list({file[0]: file for file in self.files}.values())

    @property
    def documents(self) -> int:
        """All documents that were read."""
        return self.read.total()

    def missing(self) -> int:
        """Return the number of documents without an outcome."""
        return self.documents + self.made - self._ended()

    def _ended(self) -> int:
        return self.kept + self.dropped.total() + self.merged + self.errored.total()

    def imbalance(self) -> str:
        """Describe counts that do not add up; empty if they do."""
        given, ended = self.documents + self.made, self._ended()
        if given == ended and min(self.made, self.kept, self.merged) >= 0:
            return ""
        return (
            f"{self.documents} read + {self.made} made = {given}, but {self.kept} kept "
            f"+ {self.dropped.total()} dropped + {self.merged} merged + {self.errored.total()} errored = {ended}"
        )

    def plain(self) -> dict[str, Any]:
        """Return plain values, for JSON and for messages."""
        return {
            "read": dict(sorted(self.read.items())),
            "made": self.made,
            "kept": self.kept,
            "merged": self.merged,
            "failed": self.failed,
            "errored": dict(sorted(self.errored.items())),
            "dropped": [[stage, reason, n] for (stage, reason), n in sorted(self.dropped.items())],
            "counters": [[stage, name, n] for (stage, name), n in sorted(self.counters.items())],
            "files": [list(file) for file in sorted(self.files)],
            **({"notes": [[*key, values] for key, values in sorted(self.notes.items())]} if self.notes else {}),
        }

    @classmethod
    def of_plain(cls, plain: dict[str, Any]) -> Entry:
        return cls(
            read=Counter(plain["read"]),
            bytes=plain.get("bytes", 0),
            made=plain["made"],
            kept=plain["kept"],
            merged=plain["merged"],
            failed=plain["failed"],
            errored=Counter(plain["errored"]),
            dropped=_counter(plain["dropped"]),
            counters=_counter(plain["counters"]),
            notes={(stage, name): values for stage, name, values in plain.get("notes", ())},
            files=[(name, rows, size, checksum) for name, rows, size, checksum in plain["files"]],
        )


def _cap(counts: Counter[Any], most: int, other: Any) -> None:
    """Count the rarest keys together if there are too many."""
    if len(counts) > most:
        for key, n in counts.most_common()[most - 1 :]:
            if key != other:
                del counts[key]
                counts[other] += n


def _counter(items: Iterable[tuple[str, str, int]]) -> Counter[tuple[str, str]]:
    return Counter({(first, second): n for first, second, n in items})
