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
    stage = records.Record(parts, between.records, exact, threshold)
    tasks = records.tasks_for(parts, 4 * between.workers)
    size = parts.documents * (100 if exact else 400)
    done = between.run("records", stage, tasks, size)
    removed = records.counted(done)
    between.folder.write(REMOVED, fast_json.dumps(removed))
    return records.RecordTask(removed=removed, below=sum(task.below for task in done))


def nothing(between: Between) -> None:
    """There are no documents."""
    between.folder.write(REMOVED, b"{}")


def told(name: str, parts: Parts, sizes: Sizes, removed: int) -> str:
    """The outcome in a line."""
    if not sizes.clusters:
        return f"{name}: no duplicates among {parts.documents:,} documents"
    first = parts.take(np.array([sizes.largest_label]), ["id"]).column(0)[0].as_py()
    return (
        f"{name}: {removed:,} of {parts.documents:,} documents are duplicates, in {sizes.clusters:,} clusters, "
        f"the largest of {sizes.largest:,} (with {first})"
    )
