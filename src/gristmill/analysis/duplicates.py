"""What happened to documents after a deduplication, from its records and the scores of later phases."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from gristmill.analysis.changes import ends_of_phases
from gristmill.ledger.excluded import records_name
from gristmill.scores.stored import StoredScores
from gristmill.storage import Folder


@dataclass
class AfterBarrier:
    """The outcomes of documents that reached a barrier."""

    outcomes: dict[str, tuple[str, str]] = field(default_factory=dict)
    """Stage and reason, by document; documents that are not here were kept."""
    in_clusters: int = 0
    """Other documents that were removed, in clusters with some of the documents."""


def after_barriers(
    scores: StoredScores, stages: Sequence[Any], phase: int, idents: Sequence[str], dropped: Counter[tuple[str, str]]
) -> AfterBarrier:
    """Return the outcomes of documents from the barrier at the end of a phase on.

    ``dropped`` are the counts of the run, by stage and reason.
    """
    found = AfterBarrier()
    wanted = set(idents)
    barriers = ends_of_phases(stages)
    for number in range(phase, len(barriers) + 1):
        stage = stages[barriers[number - 1]]
        clusters: set[Any] = set()
        members: list[tuple[str, Any]] = []
        reason = max((n, why) for (name, why), n in [*dropped.items(), ((stage.name, ""), 0)] if name == stage.name)[1]
        for ident, survivor, cluster, is_removed in _records(scores.folder.sub(records_name(number))):
            if ident in wanted and is_removed:
                found.outcomes.setdefault(ident, (stage.name, reason))
            if ident in wanted or survivor in wanted:
                clusters.add(cluster)
            members.append((ident, cluster))
        found.in_clusters += sum(cluster in clusters and ident not in wanted for ident, cluster in members)
        _later(scores, stages, number + 1 if number < len(barriers) else 0, barriers[number - 1], wanted, found)
    return found


def _later(
    scores: StoredScores, stages: Sequence[Any], phase: int, barrier: int, wanted: set[str], found: AfterBarrier
) -> None:
    """Add the outcomes of documents that the stages after a barrier dropped."""
    places = {(rule.phase, rule.stage): rule.stage_name for rule in scores.rules}
    for file in scores.files:
        if file.phase != phase:
            continue
        table = scores.table(file)
        for ident, stage, reason in zip(table.ids(), table.dropped_by[0].tolist(), table.reasons, strict=True):
            if stage >= 0 and ident in wanted:
                name = places.get((phase, stage)) or stages[min(barrier + stage - 1, len(stages) - 1)].name
                found.outcomes.setdefault(ident, (name, str(reason)))


def _records(folder: Folder) -> Iterator[tuple[str, str, Any, bool]]:
    """Yield removed document, survivor, cluster, and whether the whole document was removed, not pieces of it."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    for name in folder.names():
        if not name.endswith(".parquet"):
            continue
        table = pq.ParquetFile(pa.BufferReader(folder.read(name))).read()
        if not {"id", "survivor"}.issubset(table.column_names):
            continue
        clusters = table.column("cluster" if "cluster" in table.column_names else "survivor").to_pylist()
        is_whole = "piece" not in table.column_names
        pairs = zip(table.column("id").to_pylist(), table.column("survivor").to_pylist(), clusters, strict=True)
        yield from ((ident, survivor, cluster, is_whole) for ident, survivor, cluster in pairs)
