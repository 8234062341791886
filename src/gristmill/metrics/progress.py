"""The progress of a run through its input, in documents, bytes and blocks."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class InputProgress:
    """The input so far, with the blocks of earlier runs and blocks that are being read."""

    read: int
    """Documents."""
    kept: int
    blocks: int
    """Blocks that are done."""
    blocks_total: int
    bytes: int = 0
    """Bytes of the input files; of compressed files their compressed size."""
    bytes_total: int = 0
    """0 where the size of the input is not known."""
    bytes_before: int = 0
    """Bytes that earlier runs have done."""

    @property
    def fraction(self) -> float | None:
        """The share of the bytes of this run that are done; None if it is not known."""
        here = self.bytes_total - self.bytes_before
        if here <= 0:
            return None
        return min(1.0, max(0, self.bytes - self.bytes_before) / here)
