"""Long chains, found and split by keys alone: in a large cluster a survivor is linked to the documents it replaces.

Two documents are linked if they share a band. A document of a large cluster that is not linked to the survivor, and is
estimated to be far less like it, is replaced by the first such document before it that survives and is linked to it. If
there is none, it survives.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from gristmill.stages.core import ProcessingStage
from gristmill.stages.deduplication.link import LABELS, STAYS, ClusterSizes
from gristmill.stages.deduplication.match import read_array, write_array
from gristmill.stages.deduplication.parts import Parts
from gristmill.stages.deduplication.records import SIGNATURE, estimated, rows_at_once, unlinked
from gristmill.tasks import Task
from gristmill.tasks.arrow import numbers_of

if TYPE_CHECKING:
    from gristmill.stages.barrier import BarrierContext
    from gristmill.stages.deduplication.fuzzy.stage import FuzzyDeduplication

Array = np.ndarray[Any, Any]

MEMBERS, FAR = "members.npy", "far.npy"
"""Documents of large clusters that are to be removed; those of them neither linked to the survivor nor like it."""
MOST_STAYING = 100_000
"""Survivors of a cluster at most: a constant, as results do not depend on a memory limit."""
FAR_BYTES = 2500
"""Of memory, for a survivor: twenty keys in a dictionary."""
_KEYS_AT_ONCE = 20_000


@dataclass
class ChainTask(Task[list[int]]):
    """A range of members, or a group of clusters and the number of groups. The result is a file."""

    data: list[int] = field(default_factory=list)


def split_chains(
    context: BarrierContext, parts: Parts, stage: FuzzyDeduplication, labels: Array, stays: Array, sizes: ClusterSizes
) -> list[str]:
    """Keep documents of large clusters that are far from the survivor; return lines for the report."""
    is_large = np.zeros(len(labels), bool)
    is_large[sizes.large] = True
    members = np.flatnonzero(is_large[labels] & (stays != np.arange(len(labels))))
    del is_large
    write_array(context.folder, MEMBERS, members)
    step = rows_at_once(context.memory, context.workers)
    ranges = [ChainTask([at, min(at + step, len(members))], task_id=str(at)) for at in range(0, len(members), step)]
    find = FindFar(parts, stage.bands, stage.far)
    done = context.run("chains", find, ranges, len(members) * 1000)
    far = np.concatenate([read_array(context.folder, far_file(task)) for task in done])
    if not len(far):
        return []
    far.sort()
    write_array(context.folder, FAR, far)
    memory = max(1, context.memory // (4 * context.workers))
    groups = max(1, -(-len(far) * FAR_BYTES // memory))
    tasks = [ChainTask([n, groups], task_id=str(n)) for n in range(groups)]
    done = context.run("chains", SplitChains(parts, stage.bands), tasks, len(far) * FAR_BYTES)
    found = np.concatenate([read_array(context.folder, split_file(task)) for task in done], axis=1)
    stays = np.array(stays)
    stays[found[0]] = found[1]
    write_array(context.folder, STAYS, stays)
    kept = int((found[0] == found[1]).sum())
    notes = [
        f"{stage.name}: {kept:,} documents stay of {len(np.unique(labels[far])):,} chains: clusters of more than "
        f"{stage.max_chained_cluster} documents, in which they are linked to the survivor only through others and less "
        f"than {stage.far:.2f} like it"
    ]
    if alone := int(found[2].sum()):
        notes.append(
            f"{stage.name}: {alone:,} of these {kept:,} were not compared with each other: "
            f"{MOST_STAYING:,} of their cluster stay already"
        )
    return notes


def far_file(task: ChainTask) -> str:
    return f"far-{task.data[0]:012d}.npy"


def split_file(task: ChainTask) -> str:
    return f"split-{task.data[0]:06d}.npy"


class FindFar(ProcessingStage[ChainTask, ChainTask]):
    """Finds documents that are neither estimated to be like the survivor nor linked to it."""

    def __init__(self, parts: Parts, bands: Sequence[str], far: float) -> None:
        self.name = "chains"
        self.parts = parts
        self.bands = list(bands)
        self.far = far

    def process(self, task: ChainTask) -> ChainTask:
        folder = self.parts.folder
        documents = np.asarray(read_array(folder, MEMBERS)[slice(*task.data)])
        survivors = np.asarray(read_array(folder, STAYS)[documents])
        mine, theirs = (self.parts.take(side, [SIGNATURE]) for side in (documents, survivors))
        low = np.flatnonzero(estimated(mine, theirs) < self.far)
        low = low[unlinked(self.parts, self.bands, documents[low], survivors[low])]
        write_array(folder, far_file(task), documents[low])
        return ChainTask(task.data, task_id=task.task_id)


class SplitChains(ProcessingStage[ChainTask, ChainTask]):
    """Decides in the order of the source which far documents of a group of clusters survive."""

    def __init__(self, parts: Parts, bands: Sequence[str]) -> None:
        self.name = "chains"
        self.parts = parts
        self.bands = list(bands)

    def process(self, task: ChainTask) -> ChainTask:
        group, groups = task.data
        far = np.asarray(read_array(self.parts.folder, FAR))
        labels = np.asarray(read_array(self.parts.folder, LABELS)[far])
        mine = np.flatnonzero(labels % groups == group)
        found = np.zeros((3, len(mine)), np.int64)
        found[0] = far[mine]
        owners: dict[int, int] = {}
        staying: dict[int, int] = {}
        for at in range(0, len(mine), _KEYS_AT_ONCE):
            some = mine[at : at + _KEYS_AT_ONCE]
            table = self.parts.take(far[some], self.bands)
            rows = np.stack([numbers_of(column) for column in table.columns], axis=1).tolist()
            for n, (document, label, keys) in enumerate(
                zip(far[some].tolist(), labels[some].tolist(), rows, strict=True)
            ):
                linked = [owners[key] for key in keys if key in owners]
                found[1, at + n] = min(linked, default=document)
                if linked:
                    continue
                staying[label] = staying.get(label, 0) + 1
                found[2, at + n] = staying[label] > MOST_STAYING
                if staying[label] <= MOST_STAYING:
                    owners.update(dict.fromkeys(keys, document))
        write_array(self.parts.folder, split_file(task), found)
        return ChainTask(task.data, task_id=task.task_id)
