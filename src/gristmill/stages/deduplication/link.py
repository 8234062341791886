"""From pairs of documents to clusters."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from gristmill.kernels.signatures import labels as compress
from gristmill.kernels.signatures import union_edges
from gristmill.stages.deduplication.match import read_array
from gristmill.storage import Folder

Array = np.ndarray[Any, Any]

LABELS, STAYS = "labels.npy", "stays.npy"
"""For each document the first one of its cluster, and the survivor."""
_PAIRS_AT_ONCE = 1 << 22


def unite(parent: Array, folder: Folder, files: Iterable[str]) -> None:
    """Unite the documents of each pair, from files and from those with a number after the same name."""
    files = set(files)
    there = folder.names()
    for name in sorted(one for one in there if one in files or one.rpartition(".")[0] in files):
        pairs = read_array(folder, name)
        for begin in range(0, pairs.shape[1], _PAIRS_AT_ONCE):
            some = np.ascontiguousarray(pairs[:, begin : begin + _PAIRS_AT_ONCE])
            if int(some.max(initial=-1)) >= len(parent):
                raise ValueError(f"the pairs in {name} are of other documents: start over with --fresh.")
            union_edges(parent, some[0], some[1])


def clusters_of(parent: Array) -> Array:
    """Return the first document of the cluster of each document."""
    compress(parent)
    return parent


@dataclass(frozen=True)
class ClusterSizes:
    """The sizes of clusters."""

    clusters: int
    documents: int
    """In clusters of two or more."""
    largest: int
    largest_label: int
    large: Array
    """The labels of clusters above a limit."""

    @classmethod
    def of(cls, labels: Array, limit: int | None = None) -> ClusterSizes:
        others = labels[labels != np.arange(len(labels))]
        if not len(others):
            return cls(0, 0, 0, -1, others)
        found, counts = np.unique(others, return_counts=True)
        top = int(np.argmax(counts))
        large = found[:0] if limit is None else found[counts >= limit]
        return cls(len(found), len(others) + len(found), int(counts[top]) + 1, int(found[top]), large)
