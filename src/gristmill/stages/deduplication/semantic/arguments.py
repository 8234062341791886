"""Checks of the arguments of semantic deduplication, for the stage and the workflows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import isqrt
from typing import Any

from gristmill.stages.deduplication.semantic.fixed_point import MAX_DIM
from gristmill.stages.deduplication.semantic.kmeans import INITS
from gristmill.stages.deduplication.semantic.ranking import POLICIES

CHOICES = {"init": INITS, "distance_metric": ("cosine", "l2"), "which_to_keep": POLICIES}
COUNTS = ("n_clusters", "max_iter", "pairwise_batch_size")
DOCUMENTS_PER_CLUSTER = 1000


def problems(values: Mapping[str, Any]) -> Iterator[str]:
    """Yield what is wrong with arguments, by name."""
    for name, known in CHOICES.items():
        if values[name] not in known:
            words = ", ".join(repr(one) for one in known)
            yield f"{name} must be one of {words}, not {values[name]!r}"
    for name in COUNTS:
        count = values[name]
        if (count is not None or name != "n_clusters") and (type(count) is not int or count < 1):
            yield f"{name} must be a whole number above 0, not {count!r}"
    eps, dim, fraction = values["eps"], values["embedding_dim"], values["fit_data_fraction"]
    if eps is not None and not 0 <= eps <= 2:
        yield f"eps must be between 0 and 2, not {eps!r}: documents of similarity 1 - eps are duplicates"
    if values["which_to_keep"] == "best" and values["score_field"] is None:
        yield "which_to_keep='best' needs score_field: the column whose highest value is kept"
    if fraction is not None and not 0 < fraction <= 1:
        yield f"fit_data_fraction must be above 0 and at most 1, not {fraction!r}"
    if dim is not None and not 1 <= dim <= MAX_DIM:
        yield f"embedding_dim must be between 1 and {MAX_DIM}, not {dim!r}"


def default_clusters(rows: int) -> int:
    """Return how many clusters so many embeddings are divided into: 1,000 documents for each, at most the square root.

    From a million documents on the square root keeps k-means and comparing in balance.
    """
    return max(1, min(rows // DOCUMENTS_PER_CLUSTER, isqrt(rows)))
