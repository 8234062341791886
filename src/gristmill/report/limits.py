"""How much of an output a report reads: bounded, however many documents the run had."""

from __future__ import annotations

from typing import NamedTuple


class ReportLimits(NamedTuple):
    """The most that is read of the files of an output."""

    files: int
    """Of excluded documents, of kept documents and of quarantine, each."""
    bytes: int
    """Of excluded documents, decompressed."""
    scores: int
    """Files of stored scores."""
    records: int
    """Of removed duplicates. Beyond it the sizes of clusters are not counted."""


AFTER_A_SHORT_RUN = ReportLimits(files=32, bytes=2 << 20, scores=0, records=200_000)
"""It takes a few hundredths of a second. Stored scores take three tenths, most of them to import Arrow."""
AFTER_A_LONG_RUN = ReportLimits(files=64, bytes=16 << 20, scores=16, records=1_000_000)
LONG_S = 60.0
"""Of CPU time or of wall time."""
ON_REQUEST = ReportLimits(files=256, bytes=64 << 20, scores=256, records=5_000_000)
"""Of `gristmill report`: it takes seconds."""
