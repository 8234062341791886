"""What exact and fuzzy deduplication do alike between the two halves of a pipeline."""

from __future__ import annotations

from gristmill import fast_json
from gristmill.lazy import np
from gristmill.stages.barrier import Between
from gristmill.stages.deduplication import records
from gristmill.stages.deduplication.link import LABELS, STAYS, Sizes
from gristmill.stages.deduplication.match import write_array
from gristmill.stages.deduplication.parts import Parts
from gristmill.stages.deduplication.policy import survivors
from gristmill.stages.deduplication.remove import REMOVED


def write_clusters(between: Between, parts: Parts, labels: np.ndarray, policy: str) -> np.ndarray:  # type: ignore[type-arg]  # numbers
    """Write down the clusters and who stays; gives the latter."""
    stays = survivors(parts, labels, policy)
    write_array(between.folder, LABELS, labels)
    write_array(between.folder, STAYS, stays)
    return stays


def write_records(between: Between, parts: Parts, exact: bool, threshold: float = 0.0) -> records.RecordTask:
    """Write down what is removed, by part; gives the sum of it."""
    # each look may go to all parts: the more at a time, the fewer looks
    at_once = max(records.ROWS_AT_ONCE, between.memory // (4 * between.workers * records.BYTES_EACH))
    stage = records.Record(parts, between.records, exact, threshold, at_once)
    tasks = records.tasks_for(parts, 4 * between.workers)
    size = parts.documents * (100 if exact else 400)
    done = between.run("records", stage, tasks, size)
    removed = records.counted(done)
    sizes = dict(zip(parts.names, np.diff(parts.starts).tolist(), strict=True))
    counts = {name: [sizes[name], removed.get(name, 0)] for name in parts.names}
    between.folder.write(REMOVED, fast_json.dumps(counts))
    return records.RecordTask(removed=removed, below=sum(task.below for task in done))


def nothing(between: Between, parts: Parts, documents: int = 0) -> None:
    """There is nothing to remove: parts have no documents, or an unknown number (-1) with nothing in them."""
    between.folder.write(REMOVED, fast_json.dumps({name: [documents, 0] for name in parts.names}))


def told(name: str, parts: Parts, sizes: Sizes, removed: int) -> str:
    """The outcome in a line."""
    if not sizes.clusters:
        return f"{name}: no duplicates among {parts.documents:,} documents"
    first = parts.take(np.array([sizes.largest_label]), ["id"]).column(0)[0].as_py()
    return (
        f"{name}: {removed:,} of {parts.documents:,} documents are duplicates, in {sizes.clusters:,} clusters, "
        f"the largest of {sizes.largest:,} (with {first})"
    )
