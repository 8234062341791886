"""Which document of a cluster survives."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from gristmill.stages.deduplication.parts import Parts

FIRST, LONGEST, BEST = "first", "longest", "best"
POLICIES = (FIRST, LONGEST, BEST)

Array = np.ndarray[Any, Any]


def check_policy(survivor: str, score_field: str | None) -> None:
    if survivor not in POLICIES:
        raise ValueError(f"survivor must be one of {', '.join(map(repr, POLICIES))}, not {survivor!r}.")
    if (survivor == BEST) != (score_field is not None):
        raise ValueError("score_field names the column for survivor='best': give both, or neither.")


def survivors(parts: Parts, labels: Array, policy: str) -> Array:
    """Return the survivor of the cluster of each document: itself, if it survives or is alone.

    ``labels`` are the first documents of the clusters. Of equals the first in the order of the source survives.
    """
    if policy == FIRST:
        return labels
    column = {LONGEST: "size", BEST: "score"}[policy]
    alone = np.ones(len(labels), bool)
    others = np.flatnonzero(labels != np.arange(len(labels)))
    alone[others] = False
    alone[labels[others]] = False
    members = np.flatnonzero(~alone)
    values = np.empty(len(members), np.float64)
    for start, numbers in parts.all_numbers(column):
        low, high = np.searchsorted(members, [start, start + len(numbers)])
        values[low:high] = numbers[members[low:high] - start]
    order = np.lexsort((members, -values, labels[members]))
    clusters = labels[members][order]
    first = np.flatnonzero(np.diff(clusters, prepend=-1))
    stays = np.array(labels)
    best = members[order][first]
    of_cluster = np.repeat(best, np.diff(first, append=len(clusters)))
    stays[members[order]] = of_cluster
    return stays
