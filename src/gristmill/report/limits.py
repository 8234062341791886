"""How much of an output a report reads: bounded, however many documents the run had."""

from __future__ import annotations

from typing import NamedTuple


class Limits(NamedTuple):
    """The most that is read of the files of an output."""

    files: int
    """Of excluded documents, of kept documents and of quarantine, each."""
    bytes: int
    """Of excluded documents, decompressed."""
    records: int
    """Of removed duplicates. Beyond it the sizes of clusters are not counted."""


AT_THE_END = Limits(files=32, bytes=2 << 20, records=200_000)
"""Of a run: it takes a few hundredths of a second."""
ON_REQUEST = Limits(files=256, bytes=64 << 20, records=5_000_000)
"""Of `gristmill report`: it takes seconds."""
