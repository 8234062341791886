"""Sets of hashes, sorted: made of lists of them, and compared."""

from __future__ import annotations

import numpy as np

from gristmill.kernels.compile import HASHES, HASHES_OUT, INTS, INTS_OUT, helper, kernel

_HALF = np.uint64(32)


@helper
def sort_hashes(values, count, counts, out):  # type: ignore[no-untyped-def]
    """Sort numbers that are spread evenly, but may be repeated: each goes where its size says, about."""
    buckets = np.uint64(count)
    for k in range(count + 1):
        counts[k] = 0
    for k in range(count):
        counts[(((values[k] >> _HALF) * buckets) >> _HALF) + np.uint64(1)] += 1
    for k in range(count):
        counts[k + 1] += counts[k]
    for k in range(count):
        bucket = ((values[k] >> _HALF) * buckets) >> _HALF
        out[counts[bucket]] = values[k]
        counts[bucket] += 1
    for k in range(1, count):
        value = out[k]
        j = k
        while j > 0 and out[j - 1] > value:
            out[j] = out[j - 1]
            j -= 1
        out[j] = value


@kernel(HASHES_OUT, INTS_OUT, INTS_OUT, HASHES_OUT)
def make_sets(values, edges, counts, sorted_):  # type: ignore[no-untyped-def]
    """Make each list a sorted set, in place, and ``edges`` theirs. There is room for the longest and a count."""
    total = 0
    begin = edges[0]
    for d in range(len(edges) - 1):
        end = edges[d + 1]
        count = end - begin
        sort_hashes(values[begin:end], count, counts, sorted_)
        for k in range(count):
            if k == 0 or sorted_[k] != sorted_[k - 1]:
                values[total] = sorted_[k]
                total += 1
        edges[d + 1] = total
        begin = end
    return total


@kernel(HASHES, INTS, INTS, INTS, "Array(float64, 1, 'C')")
def compare_sets(values, edges, left, right, out):  # type: ignore[no-untyped-def]
    """The share of what is in one of two sets or in both that is in both, for pairs of sets; 1 if both are empty."""
    for p in range(len(left)):
        i = edges[left[p]]
        i_end = edges[left[p] + 1]
        j = edges[right[p]]
        j_end = edges[right[p] + 1]
        both = 0
        sizes = (i_end - i) + (j_end - j)
        while i < i_end and j < j_end:
            a = values[i]
            b = values[j]
            both += a == b
            i += a <= b
            j += b <= a
        out[p] = both / (sizes - both) if sizes else 1.0
