"""Documents that one run kept and the other dropped, found by their ids in bounded memory.

The ids of dropped documents are hashed to 64 bits and spread over files by hash; then one file at a time is compared.
Memory depends on the largest of these files: about 30 MB for 10 million dropped documents in each run.
"""

from __future__ import annotations

import hashlib
import os
import re
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from gristmill.lazy import Array, np
from gristmill.ledger.dropped import DroppedDocument, dropped_in, excluded_files, records_of
from gristmill.report.place import FINISHED, Data
from gristmill.report.record import text_and_id
from gristmill.storage import Folder

PARTITIONS = 64
AT_ONCE = 8_192
"""Documents of a partition that are in memory before they are written."""
EXAMPLES = 3
"""For each stage and reason."""
MOST_EXAMPLES = 60
MOST_REASONS = 200
_ROW = [("key", "u8"), ("reason", "u4"), ("file", "u4"), ("record", "u4")]
_PART = re.compile(r"part-.*\.(?:jsonl(?:\.\w+)?|parquet)")

Pair = tuple[Any, Any]


class IdFiles:
    """The keys of many documents on disk, in files by hash."""

    def __init__(self, folder: str, name: str) -> None:
        self._paths = [os.path.join(folder, f"{name}-{i}") for i in range(PARTITIONS)]
        self._waiting: list[list[tuple[int, int, int, int]]] = [[] for _ in range(PARTITIONS)]
        self.without_id = 0

    def add(self, record: Mapping[str, Any], id_field: str, reason: int, file: int, number: int) -> None:
        ident = record.get(id_field)
        if ident is None or ident == "":
            self.without_id += 1
            ident = record.get("text")
        key = int.from_bytes(hashlib.blake2b(str(ident).encode("utf-8", "replace"), digest_size=8).digest(), "big")
        rows = self._waiting[key % PARTITIONS]
        rows.append((key, reason, file, number))
        if len(rows) >= AT_ONCE:
            self._write(key % PARTITIONS)

    def _write(self, partition: int) -> None:
        with open(self._paths[partition], "ab") as file:
            file.write(np.array(self._waiting[partition], dtype=_ROW).tobytes())
        self._waiting[partition] = []

    def partition(self, number: int) -> Array:
        """Return the rows of a partition, sorted by key."""
        if self._waiting[number]:
            self._write(number)
        path = self._paths[number]
        rows: Array = np.fromfile(path, dtype=_ROW) if os.path.exists(path) else np.zeros(0, dtype=_ROW)
        return rows[np.argsort(rows["key"], kind="stable")]


class Side:
    """The dropped documents of one run, and the kept ones if they are needed."""

    def __init__(self, folder: Folder, place: str, name: str) -> None:
        self.folder = folder
        self.files = excluded_files(folder)
        self.dropped = IdFiles(place, f"{name}-dropped")
        self.kept = IdFiles(place, f"{name}-kept")
        self.reasons: dict[tuple[str, str], int] = {}

    def read_dropped(self, id_field: str) -> None:
        for number, (place, name) in enumerate(self.files):
            for position, one in enumerate(dropped_in(place, name)):
                reason = self.reasons.setdefault((one.stage, one.reason), len(self.reasons))
                self.dropped.add(one.record, id_field, reason, number, position)

    def read_kept(self, id_field: str) -> None:
        names = [name for name in self.folder.names() if _PART.fullmatch(name)]
        for number, name in enumerate(names):
            for position, record in enumerate(records_of(self.folder, name)):
                self.kept.add(record, id_field, 0, number, position)

    def document(self, file: int, number: int) -> DroppedDocument | None:
        place, name = self.files[file]
        return next(islice(dropped_in(place, name), number, None), None)


def changed_sides(folders: Sequence[Folder], records: Sequence[Data], same_input: bool, id_field: str) -> Data:
    """Return the documents that one run kept and the other dropped, by stage and reason, with examples."""
    partial = [name for name, data in zip("AB", records, strict=True) if _excluded(data) is not True]
    if partial:
        return {
            "problem": f"unknown: the writer of {' and '.join(partial)} did not keep all dropped documents "
            "(excluded=True of the writer does)"
        }
    is_direct = same_input and all(data.get("state") == FINISHED for data in records)
    with tempfile.TemporaryDirectory(prefix="gristmill-diff-") as place:
        sides = [Side(folder, place, name) for folder, name in zip(folders, "ab", strict=True)]
        for side in sides:
            side.read_dropped(id_field)
            if not is_direct:
                side.read_kept(id_field)
        a, b = sides
        return {
            "is_direct": is_direct,
            "without_id": a.dropped.without_id + b.dropped.without_id + a.kept.without_id + b.kept.without_id,
            "id_field": id_field,
            "dropped_in_b": _moved(b, a, is_direct),
            "dropped_in_a": _moved(a, b, is_direct),
        }


def _excluded(data: Data) -> Any:
    """Return which dropped documents the writer of a run kept: True for all; None if it is not known."""
    for stage in reversed(data.get("stages") or []):
        arguments = stage.get("arguments")
        if isinstance(arguments, dict) and "excluded" in arguments:
            return arguments["excluded"]
    return None


def _moved(dropping: Side, keeping: Side, is_direct: bool) -> Data:
    """Return the documents that one side dropped and the other kept."""
    counts: Counter[int] = Counter()
    chosen: dict[int, list[tuple[int, int, int]]] = {}
    for number in range(PARTITIONS):
        moved = _more_dropped(dropping, keeping, number, is_direct)
        for reason, n in zip(*np.unique(moved["reason"], return_counts=True), strict=True):
            counts[int(reason)] += int(n)
            first = moved[moved["reason"] == reason][:EXAMPLES]
            both = [*chosen.get(int(reason), ()), *((int(r["key"]), int(r["file"]), int(r["record"])) for r in first)]
            chosen[int(reason)] = sorted(both)[:EXAMPLES]
    names = {number: key for key, number in dropping.reasons.items()}
    examples = dict(_examples(dropping, chosen, counts))
    groups = [
        {"stage": names[reason][0], "reason": names[reason][1], "documents": n, "examples": examples.get(reason, [])}
        for reason, n in counts.most_common(MOST_REASONS)
    ]
    return {"documents": counts.total(), "groups": groups}


def _more_dropped(dropping: Side, keeping: Side, number: int, is_direct: bool) -> Array:
    """Return the dropped documents of a partition that the other side kept.

    Several documents may have one id: as many have moved as one side has dropped more than the other, and kept fewer.
    If both read the same documents, these numbers are equal, and the output is not read.
    """
    gone = dropping.dropped.partition(number)
    keys, first, counts = np.unique(gone["key"], return_index=True, return_counts=True)
    moved = counts - _counts_of(keys, keeping.dropped.partition(number))
    if not is_direct:
        fewer = _counts_of(keys, keeping.kept.partition(number)) - _counts_of(keys, dropping.kept.partition(number))
        moved = np.minimum(moved, fewer)
    place = np.arange(len(gone)) - np.repeat(first, counts)  # among those of its id
    found: Array = gone[place >= np.repeat(counts - np.maximum(moved, 0), counts)]
    return found


def _counts_of(keys: Array, rows: Array) -> Array:
    """Return how many of the sorted rows have each key."""
    found: Array = np.searchsorted(rows["key"], keys, "right") - np.searchsorted(rows["key"], keys, "left")
    return found


def _examples(
    side: Side, chosen: Mapping[int, Sequence[tuple[int, int, int]]], counts: Counter[int]
) -> Iterator[tuple[int, list[Data]]]:
    """Yield examples by reason, the most frequent reasons first."""
    left = MOST_EXAMPLES
    for reason, _ in counts.most_common(MOST_REASONS):
        found = list(_read(side, chosen[reason][:left]))
        left -= len(found)
        yield reason, found


def _read(side: Side, places: Iterable[tuple[int, int, int]]) -> Iterator[Data]:
    for _, file, number in places:
        document = side.document(file, number)
        if document is not None:
            yield {"score": document.score, **text_and_id(document.record)}
