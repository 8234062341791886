"""Removed duplicates of an output: how many clusters of each size, and the largest with examples."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count, takewhile
from typing import Any

from gristmill.errors import PlanError
from gristmill.lazy import np
from gristmill.ledger.excluded import records_name
from gristmill.report.limits import ReportLimits
from gristmill.report.place import Data
from gristmill.report.source import document_of
from gristmill.storage import Folder

SIZES = ((2, 2), (3, 3), (4, 5), (6, 10), (11, 100), (101, None))
LARGEST, SMALLEST = 3, 2
"""Clusters that are shown: the largest, and some of two documents."""
MEMBERS = 3
"""Documents that are shown of a cluster, beside the one that stays."""
ROWS = 65_536
_COLUMNS = ("id", "survivor", "cluster", "jaccard_estimated", "jaccard_verified", "similarity")


def duplicates(folder: Folder, limits: ReportLimits) -> list[Data]:
    """Return the clusters of each stage that removes duplicates, in the order of the stages."""
    places = takewhile(folder.exists, (records_name(n) for n in count(1)))
    return [_of(folder.sub(place), place, limits) for place in places]


def _of(records: Folder, place: str, limits: ReportLimits) -> Data:
    files = [name for name in records.names() if name.endswith(".parquet")]
    made: Data = {"folder": place, "files": len(files)}
    try:
        removed = _rows_in(records, files, limits.records)
        if removed is None:
            return made | {"too_many": limits.records}
        keys = np.fromiter((hash(key) for key, _ in _rows(records, files)), dtype=np.int64, count=removed)
        clusters, sizes = np.unique(keys, return_counts=True)
        sizes = sizes + 1  # the document that stays
        order = np.argsort(-sizes, kind="stable")
        pairs = np.flatnonzero(sizes == 2)[:SMALLEST]
        shown = list(dict.fromkeys([*order[:LARGEST].tolist(), *pairs.tolist()]))
        examples = _examples(records, files, {int(clusters[i]): int(sizes[i]) for i in shown})
    except (PlanError, OSError) as error:
        return made | {"problem": str(error)}
    return made | {
        "removed": removed,
        "clusters": len(clusters),
        "largest": int(sizes.max()) if len(sizes) else 0,
        "sizes": [
            [low, high, int(((sizes >= low) & (sizes <= (high or sizes.max(initial=0)))).sum())] for low, high in SIZES
        ],
        "examples": examples,
    }


def _rows_in(records: Folder, files: list[str], most: int) -> int | None:
    """Return the number of records; None if there are more than ``most``."""
    total = 0
    for name in files:
        with _parquet(records, name) as file:
            total += file.metadata.num_rows
        if total > most:
            return None
    return total


def _rows(records: Folder, files: list[str]) -> Iterator[tuple[str, Data]]:
    """Yield all records, each with the key of its cluster."""
    for name in files:
        with _parquet(records, name) as file:
            names = file.schema_arrow.names
            key = "cluster" if "cluster" in names else "survivor"
            wanted = [name for name in names if name in _COLUMNS]
            for batch in file.iter_batches(batch_size=ROWS, columns=wanted):
                for row in batch.to_pylist():
                    yield str(row.get(key)), row


def _parquet(records: Folder, name: str) -> Any:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return pq.ParquetFile(pa.BufferReader(records.read(name)))
    except pa.ArrowInvalid as error:
        raise PlanError(f"{records.full_path(name)} is damaged: {error}") from None


def _examples(records: Folder, files: list[str], shown: dict[int, int]) -> list[Data]:
    """Return some members of some clusters, largest first, with the beginning of their texts."""
    found: dict[int, list[Data]] = {key: [] for key in shown}
    for name, row in _rows(records, files):
        members = found.get(hash(name))
        if members is not None and len(members) < MEMBERS:
            members.append(row)
    made = []
    for key, rows in found.items():
        if not rows:
            continue
        made.append(
            {
                "size": shown[key],
                "survivor": document_of(str(rows[0].get("survivor"))),
                "members": [document_of(str(row.get("id"))) | {"similarity": _similarity(row)} for row in rows],
            }
        )
    return made


def _similarity(row: Data) -> float | None:
    names = ("jaccard_verified", "jaccard_estimated", "similarity")
    value = next((row[name] for name in names if row.get(name) is not None), None)
    return float(value) if isinstance(value, int | float) else None
