"""The documents of a cluster that stay, found by the shingles that they share with another document.

Sets of shingles are in a file without a name, so that memory does not grow with the texts that stay. In memory there
are a few shingles of each document: those with the smallest hashes, which are a sample of its set.
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
"""Documents of one cluster that another is compared with."""
MOST_SHARING = 64
"""Documents of a cluster that are remembered for one shingle."""
MOST_INDEXED = 1 << 14
"""Documents of a cluster that are found by their shingles: a constant, as results do not depend on a memory limit."""
MOST_LEAST = 128
INDEX_BYTES = 200
"""Of memory, for each shingle of a document by which it is found."""
ODDS = 1e-10
"""The odds that two documents as similar as the threshold share fewer of their least shingles than is asked for."""


class SetsOnDisk:
    """Sets of hashes in a file without a name, each read back by its place."""

    def __init__(self, folder: Folder) -> None:
        self._file = tempfile.TemporaryFile(dir=folder.path() if folder.is_local else None, buffering=0)  # noqa: SIM115  # closed by `close`
        self._end = 0

    def add(self, values: Array) -> tuple[int, int]:
        """Append a set; gives its place."""
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
    """How many of the smallest hashes of a set are enough to find one that is as similar as the threshold."""
    if threshold >= 1:
        return 1
    return min(MOST_LEAST, max(4, math.ceil(math.log(1e-20) / math.log(1 - threshold))))


@cache
def least_shared(size: int, threshold: float) -> int:
    """How many of its least shingles a document of ``size`` shingles shares with any that is as similar as this.

    The least shingles of two sets are a sample of their union, each shared with the odds of their similarity. In sets
    so small that all of their shingles are looked at, it is certain.
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
    """What a search among the documents that stay has given."""

    document: int
    """The first one that is similar enough, -1 if there is none."""
    similarity: float
    is_complete: bool
    """Whether all that can be similar enough were compared."""


class Staying:
    """The documents of a cluster that stay."""

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
        """Find a document that is like another, besides the one that stands for all.

        Compared are those that share most of the shingles with the smallest hashes.
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
        # a list that is full lacks documents: any may share its shingle
        needed = least_shared(len(shingles), self._threshold) - (len(lists) - len(whole))
        possible = sum(count >= needed for count in shared.values())
        return SimilarDocument(-1, 0.0, needed > 0 and possible <= MOST_COMPARED and not self._is_full)

    def add(self, document: int, shingles: Array) -> None:
        self._by_all[_digest(shingles)] = document
        if len(self._others) >= MOST_INDEXED:
            self._is_full = True  # equal ones are found all the same
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
