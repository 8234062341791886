"""Sorted sets of hashes, made from lists and compared."""

from __future__ import annotations

import numpy as np

from gristmill.kernels.compile import helper, kernel

_HALF = np.uint64(32)


@helper
def sort_hashes(values, count, counts, out):
    """Sort numbers that are spread evenly and may be repeated: each goes to a bucket by its size, then to its place."""
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


@kernel("out_hashes out_ints out_ints out_hashes")
def make_sets(values, edges, counts, sorted_):
    """Make each list a sorted set in place, and update ``edges``. ``counts`` is one longer than the longest list."""
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


@kernel("hashes ints ints ints out_floats")
def compare_sets(values, edges, left, right, out):
    """Write the Jaccard similarity of pairs of sets; 1 if both are empty."""
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
