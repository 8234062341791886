"""How far a run has come with its input, counted in documents, bytes and blocks."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class InputProgress:
    """What became of the input so far, blocks of earlier runs and blocks that are being read included."""

    read: int
    """Documents."""
    kept: int
    blocks: int
    """Those that are done."""
    blocks_total: int
    bytes: int = 0
    """Of the input, as it lies in files: compressed files by their compressed size."""
    bytes_total: int = 0
    """0 where the size of the input is not known."""
    bytes_before: int = 0
    """Those that earlier runs have done."""

    @property
    def fraction(self) -> float | None:
        """The share of the bytes of this run that are done; None where it cannot be told."""
        here = self.bytes_total - self.bytes_before
        if here <= 0:
            return None
        return min(1.0, max(0, self.bytes - self.bytes_before) / here)
