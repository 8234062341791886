"""The survivors of a cluster, found by the shingles that they share with another document.

Sets of shingles are in a file without a name, so that memory does not grow with the texts. In memory are a few shingles
of each survivor: those with the smallest hashes, which are a sample of its set.
"""

from __future__ import annotations

import math
import os
import tempfile
from collections import Counter
from dataclasses import dataclass
from functools import cache
from hashlib import blake2b
from typing import Any

import numpy as np

from gristmill.kernels.signatures import jaccards
from gristmill.storage import Folder

Array = np.ndarray[Any, Any]

MOST_COMPARED = 16
"""Survivors that a document is compared with."""
MOST_SHARING = 64
"""Survivors that are remembered for one shingle."""
MOST_INDEXED = 1 << 14
"""Survivors that are found by their shingles: a constant, as results do not depend on a memory limit."""
MOST_LEAST = 128
INDEX_BYTES = 200
"""Of memory, for each remembered shingle."""
ODDS = 1e-10
"""The odds that two documents as similar as the threshold share fewer of their least shingles than required."""


class SetsOnDisk:
    """Sets of hashes in a file without a name, read by their place."""

    def __init__(self, folder: Folder) -> None:
        self._file = tempfile.TemporaryFile(dir=folder.path() if folder.is_local else None, buffering=0)  # noqa: SIM115  # closed by `close`
        self._end = 0

    def add(self, values: Array) -> tuple[int, int]:
        """Append a set; return its place."""
        data = memoryview(values.tobytes())
        done = 0
        while done < len(data):
            done += self._file.write(data[done:])
        place = self._end, len(data)
        self._end += len(data)
        return place

    def read(self, place: tuple[int, int]) -> Array:
        begin, size = place
        data = bytearray()
        while len(data) < size:
            data += os.pread(self._file.fileno(), size - len(data), begin + len(data))
        return np.frombuffer(bytes(data), np.uint64)

    def close(self) -> None:
        self._file.close()


@cache
def least_for(threshold: float) -> int:
    """Return how many of the smallest hashes of a set find a set that is as similar as the threshold."""
    if threshold >= 1:
        return 1
    return min(MOST_LEAST, max(4, math.ceil(math.log(1e-20) / math.log(1 - threshold))))


@cache
def least_shared(size: int, threshold: float) -> int:
    """Return how many of its least shingles a document of ``size`` shingles shares with one as similar as this.

    The least shingles of two sets are a sample of their union, each shared with the odds of their similarity. For sets
    so small that all of their shingles are compared the number is certain.
    """
    least = least_for(threshold)
    if size <= least * threshold:
        return math.ceil(size * threshold - 1e-9)
    drawn = min(size, least)
    odds, shared = 0.0, 0
    while shared < drawn:
        odds += math.comb(drawn, shared) * threshold**shared * (1 - threshold) ** (drawn - shared)
        if odds > ODDS:
            break
        shared += 1
    return shared


@dataclass(frozen=True)
class SimilarDocument:
    """The result of a search among the survivors."""

    document: int
    """The first similar survivor, -1 if there is none."""
    similarity: float
    is_complete: bool
    """Whether all survivors that can be similar were compared."""


class Staying:
    """The survivors of a cluster."""

    def __init__(self, document: int, shingles: Array, sets: SetsOnDisk, threshold: float) -> None:
        self.first = document, shingles
        self._sets = sets
        self._threshold = threshold
        self._least = least_for(threshold)
        self._others: list[tuple[int, tuple[int, int]]] = []
        self._by_shingle: dict[int, list[int]] = {}
        self._by_all: dict[bytes, int] = {}
        self._is_full = False

    def like(self, shingles: Array) -> SimilarDocument:
        """Find a survivor, other than the first, that is like a document.

        Survivors that share most of the shingles with the smallest hashes are compared.
        """
        same = self._by_all.get(_digest(shingles))
        if same is not None:
            return SimilarDocument(same, 1.0, True)
        lists = [self._by_shingle.get(value, ()) for value in shingles[: self._least].tolist()]
        whole = [one for one in lists if len(one) < MOST_SHARING]
        shared, anyhow = (Counter(n for one in some for n in one) for some in (whole, lists))
        most = sorted(anyhow, key=lambda n: (-shared[n], -anyhow[n], n))[:MOST_COMPARED]
        most.sort()
        if most:
            similar = _jaccards(shingles, [self._sets.read(self._others[n][1]) for n in most])
            near = np.flatnonzero(similar >= self._threshold)
            if len(near):
                return SimilarDocument(self._others[most[near[0]]][0], float(similar[near[0]]), True)
        # a full list lacks survivors: any of them may share its shingle
        needed = least_shared(len(shingles), self._threshold) - (len(lists) - len(whole))
        possible = sum(count >= needed for count in shared.values())
        return SimilarDocument(-1, 0.0, needed > 0 and possible <= MOST_COMPARED and not self._is_full)

    def add(self, document: int, shingles: Array) -> None:
        self._by_all[_digest(shingles)] = document
        if len(self._others) >= MOST_INDEXED:
            self._is_full = True  # equal ones are still found
            return
        for value in shingles[: self._least].tolist():
            sharing = self._by_shingle.setdefault(value, [])
            if len(sharing) < MOST_SHARING:
                sharing.append(len(self._others))
        self._others.append((document, self._sets.add(shingles)))


def _digest(shingles: Array) -> bytes:
    return blake2b(shingles.tobytes(), digest_size=16).digest()


def _jaccards(mine: Array, others: list[Array]) -> Array:
    edges = np.cumsum([0, len(mine), *(len(other) for other in others)])
    numbers = np.arange(1, len(others) + 1)
    return jaccards(np.concatenate([mine, *others]), edges, np.zeros(len(others), np.int64), numbers)
