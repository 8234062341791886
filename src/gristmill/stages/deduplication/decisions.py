"""The decisions of exact and fuzzy deduplication between the two phases of a pipeline."""

from __future__ import annotations

from collections.abc import Sequence

from gristmill import fast_json
from gristmill.lazy import np
from gristmill.stages.barrier import BarrierContext
from gristmill.stages.deduplication import link, match, records
from gristmill.stages.deduplication.link import LABELS, STAYS, ClusterSizes
from gristmill.stages.deduplication.match import write_array
from gristmill.stages.deduplication.parts import Parts
from gristmill.stages.deduplication.remove import REMOVED, UNKNOWN
from gristmill.stages.deduplication.survivors import survivors


def write_clusters(context: BarrierContext, parts: Parts, labels: np.ndarray, policy: str) -> np.ndarray:  # type: ignore[type-arg]  # numbers
    """Write the clusters and the survivor of each document; return the survivors."""
    stays = survivors(parts, labels, policy)
    write_array(context.folder, LABELS, labels)
    write_array(context.folder, STAYS, stays)
    return stays


def equal_keys(context: BarrierContext, parts: Parts) -> np.ndarray:  # type: ignore[type-arg]  # numbers
    """Return for each row of keys the first one with the same hash of 128 bits."""
    tasks = match.tasks_for("exact", ["h0", "h1"], parts.documents, context.memory // (2 * context.workers))
    context.run("match", match.Match(parts), tasks, parts.documents * 16)
    parent = np.arange(parts.documents)
    link.unite(parent, context.folder, [task.data for task in tasks])
    return link.clusters_of(parent)


def write_records(
    context: BarrierContext, parts: Parts, own_ids: bool, bands: Sequence[str] = (), far: float = 0.0
) -> records.RecordTask:
    """Write the records of removed documents, by part; return the sum of their counts.

    ``bands`` are the columns of keys that link documents, empty for equal ones. Documents whose estimated similarity is
    below ``far`` are counted, by whether they share a band with the survivor.
    """
    rows = records.rows_at_once(context.memory, context.workers)
    stage = records.DocumentRecords(parts, context.records, rows, own_ids, bands, far)
    tasks = records.tasks_for(parts, context.workers)
    done = context.run("records", stage, tasks, parts.documents * (400 if bands else 100))
    chained, met = (sum(counts) for counts in zip(*((task.chained, task.met) for task in done), strict=True))
    return records.RecordTask(removed=write_counts(context, parts, done), chained=chained, met=met)


def write_piece_records(context: BarrierContext, parts: Parts, own_ids: bool) -> int:
    """Write the records of removed pieces, by part; return their number."""
    rows = records.rows_at_once(context.memory, context.workers)
    stage = records.PieceRecords(parts, context.records, rows, own_ids)
    done = context.run("records", stage, records.tasks_for(parts, context.workers), parts.documents * 100)
    return sum(write_counts(context, parts, done, of_documents=False).values())


def write_counts(
    context: BarrierContext, parts: Parts, done: Sequence[records.RecordTask] = (), of_documents: bool = True
) -> dict[str, int]:
    """Write the counts that `RemoveDuplicates` or `RemovePieces` check; return the number of removals by part.

    If rows of keys are not ``of_documents``, the number of documents of a part is unknown.
    """
    removed = records.counted(done)
    sizes = np.diff(parts.starts).tolist() if of_documents else [UNKNOWN] * len(parts)
    counts = {name: [size, removed.get(name, 0)] for name, size in zip(parts.names, sizes, strict=True)}
    context.folder.write(REMOVED, fast_json.dumps(counts))
    return removed


def outcome(name: str, parts: Parts, sizes: ClusterSizes, removed: int) -> str:
    """Describe the outcome in a line."""
    if not sizes.clusters:
        return f"{name}: no duplicates among {parts.documents:,} documents"
    first = parts.take(np.array([sizes.largest_label]), ["id"]).column(0)[0].as_py()
    return (
        f"{name}: {removed:,} of {parts.documents:,} documents are duplicates, in {sizes.clusters:,} clusters, "
        f"the largest of {sizes.largest:,} (with {first})"
    )
