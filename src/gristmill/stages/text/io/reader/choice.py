"""Which records of a file are read: all, a sample of them, or no more than some number."""

from __future__ import annotations

import hashlib

import numpy as np

from gristmill.lazy import Array

NOT_SAMPLED = "not in the sample"
"""The counter of records that are skipped because of ``sample``."""
_BITS = 53


def file_key(name: str) -> int:
    """Return the number that stands for a file in a sample, by its name within the input."""
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "little")


def in_sample(key: int, positions: Array, rate: float) -> Array:
    """Return a mask of the positions of a file that are in a sample.

    It depends on the file's key and the positions only. A smaller sample is a part of a larger one.
    """
    x = positions.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(key)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):  # splitmix64
        x = (x ^ (x >> np.uint64(shift))) * np.uint64(factor)
    x ^= x >> np.uint64(31)
    mask: Array = (x >> np.uint64(64 - _BITS)) < np.uint64(round(rate * (1 << _BITS)))
    return mask


class Choice:
    """Takes the records of one file, or of a range of it, in order."""

    def __init__(self, rate: float | None = None, key: int = 0, limit: int = -1) -> None:
        self._rate = rate
        self._key = key
        self._left = limit

    @property
    def takes_all(self) -> bool:
        return self._rate is None and self._left < 0

    @property
    def is_full(self) -> bool:
        """Whether nothing more is taken."""
        return self._left == 0

    def count_one(self) -> None:
        """Count a record that is taken wherever it is: the damaged rest of a file."""
        self._left -= self._left > 0

    def take(self, positions: Array) -> tuple[Array, int]:
        """Return a mask of the records at these positions that are taken, and how many were not in the sample.

        Records after the last one that fits the limit count as neither.
        """
        if self._rate is None:
            mask = np.ones(len(positions), dtype=bool)
        else:
            mask = in_sample(self._key, positions, self._rate)
        seen = len(mask)
        if self._left >= 0:
            if np.count_nonzero(mask) >= self._left:
                seen = int(np.flatnonzero(mask)[self._left - 1]) + 1 if self._left else 0
                mask[seen:] = False
            self._left -= int(np.count_nonzero(mask))
        return mask, seen - int(np.count_nonzero(mask))
