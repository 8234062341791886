"""Which images are nearly equal to one that stays, decided between the two phases of a pipeline.

Images are settled in the order of the policy, in blocks. An image of a block is compared with the images that stay of
earlier blocks, in tasks that workers share, and then with those that stay before it in its block. Neither the size of
blocks nor the number of tasks changes the result: it is as if each image were compared with all that stay before it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from gristmill.kernels.thumbnails import compared, first_near
from gristmill.kernels.thumbnails import preload as preload_kernels
from gristmill.stages.core import ProcessingStage
from gristmill.stages.deduplication import decisions
from gristmill.stages.deduplication.link import LABELS, STAYS, ClusterSizes
from gristmill.stages.deduplication.match import read_array, write_array
from gristmill.stages.deduplication.parts import IDENT, SCORE, SIZE, Parts
from gristmill.stages.deduplication.records import ROW, PartRecords, RecordTask, tasks_for
from gristmill.stages.deduplication.survivors import FIRST
from gristmill.stages.image.deduplication.barrier import BAD
from gristmill.stages.image.deduplication.perceptual import BLANK, LARGEST, keys_of
from gristmill.tasks import Task
from gristmill.tasks.arrow import int_array, mask_of, number_array

if TYPE_CHECKING:
    from gristmill.stages.barrier import BarrierContext
    from gristmill.stages.image.deduplication.perceptual import NearDuplicates

Array = np.ndarray[Any, Any]

ORDER, LEADERS = "order.npy", "leaders.npy"
"""Images with hashes, in the order in which they are settled; those that stay so far."""
BYTES_EACH = 7000
"""Of memory, for each image that is compared at a time: hashes and thumbnail in three copies, and the index."""
LEAST_BLOCK, BLOCKS = 16_384, 16
"""Images of a block at least, if memory allows it, and the number of blocks of more images."""
_RECORD_BYTES = 10_000
_MEMORY_LEAST = 256


@dataclass
class NearTask(Task[list[int]]):
    """A block of `ORDER`, and a range of `LEADERS` to compare it with. The range is empty to settle the block."""

    data: list[int] = field(default_factory=list)

    @property
    def file(self) -> str:
        begin, _, low, high = self.data
        return f"near-{begin:012d}-{low:012d}.npy" if high > low else f"settled-{begin:012d}.npy"


def decide(stage: NearDuplicates, context: BarrierContext, parts: Parts) -> None:
    """Settle all images, and write labels, survivors, records and counts."""
    usable, blank = _by_kind(parts)
    order = _ranked(parts, stage.survivor)
    stays = np.arange(parts.documents)
    _unite_blank(parts, order, blank, stays)
    _settle(stage, context, parts, order[usable[order]], stays)
    gone = np.flatnonzero(stays != np.arange(len(stays)))
    labels = _labels(stays, gone)
    write_array(context.folder, LABELS, labels)
    write_array(context.folder, STAYS, stays)
    rows = max(_MEMORY_LEAST, context.memory // (4 * context.workers * _RECORD_BYTES))
    records = NearRecords(parts, context.records, rows, stage)
    tasks = tasks_for(parts, context.workers)
    done = context.run("records", records, tasks, len(gone) * _RECORD_BYTES)
    removed = sum(decisions.write_counts(context, parts, done).values())
    context.notes.append(decisions.outcome(stage.name, parts, ClusterSizes.of(labels), removed))
    if len(blank):
        context.notes.append(
            f"{stage.name}: {len(blank):,} {stage.what} with too little contrast for a hash were compared by their "
            "pixels"
        )


def _by_kind(parts: Parts) -> tuple[Array, Array]:
    """Return which images have hashes, and the numbers of those that are blank."""
    usable = np.ones(parts.documents, bool)
    blank = []
    for part in range(len(parts)):
        table = parts.table(part, [BAD, BLANK])
        begin, end = parts.starts[part], parts.starts[part + 1]
        is_blank = _there(table.column(BLANK))
        blank.append(begin + np.flatnonzero(is_blank))
        usable[begin:end] = ~(is_blank | _there(table.column(BAD)))
    return usable, np.concatenate(blank)


def _there(column: pa.ChunkedArray) -> Array:
    parts = [mask_of(chunk.is_valid()) for chunk in column.chunks]
    return np.concatenate(parts) if parts else np.zeros(0, bool)


def _ranked(parts: Parts, policy: str) -> Array:
    """Return all images in the order in which they stay. Of equals the first in the order of the source is first."""
    if policy == FIRST:
        return np.arange(parts.documents)
    values = np.empty(parts.documents, np.float64)
    for start, numbers in parts.all_numbers(SIZE if policy == LARGEST else SCORE):
        values[start : start + len(numbers)] = numbers
    return np.argsort(-values, kind="stable")


def _unite_blank(parts: Parts, order: Array, blank: Array, stays: Array) -> None:
    """Give blank images with equal pixels the same survivor: the first in the order."""
    if not len(blank):
        return
    ranks = np.empty(len(order), np.int64)
    ranks[order] = np.arange(len(order))
    blank = blank[np.argsort(ranks[blank])]
    first: dict[bytes, int] = {}
    for document, pixels in zip(blank.tolist(), parts.take(blank, [BLANK]).column(BLANK).to_pylist(), strict=True):
        stays[document] = first.setdefault(pixels, document)


def _settle(stage: NearDuplicates, context: BarrierContext, parts: Parts, order: Array, stays: Array) -> None:
    """Write the survivor of each image of ``order`` to ``stays``."""
    write_array(context.folder, ORDER, order)
    most = max(_MEMORY_LEAST, context.memory // (4 * context.workers * BYTES_EACH))
    size = min(most, max(LEAST_BLOCK, -(-len(order) // BLOCKS)))
    find = FindNear(parts, stage)
    leaders = np.zeros(0, np.int64)
    for begin in range(0, len(order), size):
        end = min(begin + size, len(order))
        tasks = []
        if len(leaders):
            write_array(context.folder, LEADERS, leaders)
            step = min(most, -(-len(leaders) // context.workers))
            ranges = range(0, len(leaders), step)
            tasks = [NearTask([begin, end, low, min(low + step, len(leaders))], task_id=str(low)) for low in ranges]
            context.run("compare", find, tasks, (len(leaders) + end - begin) * BYTES_EACH)
        found = _first([read_array(context.folder, task.file) for task in tasks], end - begin)
        own = NearTask([begin, end, 0, 0], task_id="0")
        write_array(context.folder, own.file, found)
        (done,) = context.run("settle", find, [own], (end - begin) * BYTES_EACH)
        found = read_array(context.folder, done.file)
        block = order[begin:end]
        stays[block] = np.where(found < 0, block, found)
        leaders = np.concatenate([leaders, block[found < 0]])


def _first(found: list[Array], count: int) -> Array:
    """Return the survivor of each image of a block from those among ranges of leaders: that of the first range."""
    first = np.full(count, -1, np.int64)
    for one in found:
        first = np.where(first < 0, one, first)
    return first


def _labels(stays: Array, gone: Array) -> Array:
    """Return the first document of the cluster of each."""
    first = np.arange(len(stays))
    np.minimum.at(first, stays[gone], gone)
    return first[stays]


class FindNear(ProcessingStage[NearTask, NearTask]):
    """Compares the images of a block with some that stay, or settles the rest of the block."""

    def __init__(self, parts: Parts, stage: NearDuplicates) -> None:
        self.name = "compare"
        self.parts = parts
        self.windows = stage.windows
        self.limits = stage.max_distance, stage.least

    def preload(self) -> None:
        preload_kernels()

    def process(self, task: NearTask) -> NearTask:
        folder = self.parts.folder
        begin, end, low, high = task.data
        block = np.asarray(read_array(folder, ORDER)[begin:end])
        if high > low:
            leaders = np.asarray(read_array(folder, LEADERS)[low:high])
            found = self._first_near(np.concatenate([leaders, block]), len(leaders))[len(leaders) :]
            survivors = np.where(found < 0, -1, leaders[found])
        else:
            survivors = np.array(read_array(folder, task.file))
            left = np.flatnonzero(survivors < 0)
            found = self._first_near(block[left])
            near = np.flatnonzero(found >= 0)
            survivors[left[near]] = block[left[found[near]]]
        write_array(folder, task.file, survivors)
        return NearTask(task.data, task_id=task.task_id)

    def _first_near(self, documents: Array, known: int = 0) -> Array:
        hashes, thumbnails, _ = keys_of(self.parts, documents)
        return first_near(hashes, thumbnails, self.windows, *self.limits, known=known)


class NearRecords(PartRecords):
    """Records of images, with the distance of the hashes and the similarity."""

    def __init__(self, parts: Parts, records: Any, rows_at_once: int, stage: NearDuplicates) -> None:
        super().__init__(parts, records, rows_at_once, stage.id_field is not None)
        self.windows = stage.windows
        self.max_distance = stage.max_distance

    def preload(self) -> None:
        preload_kernels()

    def _table(self, gone: Array, stays: Array, done: RecordTask) -> pa.Table:
        hashes, thumbnails, table = keys_of(self.parts, np.stack([gone, stays], axis=1).ravel(), [*self.idents, BLANK])
        distances, similar = compared(hashes, thumbnails, self.windows, self.max_distance)
        mine, theirs = (table.take(int_array(np.arange(n, 2 * len(gone), 2))) for n in range(2))
        equal = _there(mine.column(BLANK))  # blank pictures are duplicates if they are equal
        distances[equal], similar[equal] = 0, 1.0
        labels = np.asarray(read_array(self.parts.folder, LABELS)[gone])
        made = self._ids(mine, theirs)
        made["cluster"] = self.parts.take(labels, [IDENT]).column(IDENT)
        made["distance"] = number_array(distances.astype(np.int32))
        made["similarity"] = number_array(similar.round(4))
        made[ROW] = int_array(self.parts.place(gone)[1])
        return pa.table(made)
