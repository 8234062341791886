"""DeBERTa's relative positions: which row of the position tables holds for each distance between two tokens."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch

FIRST_TOKENS = 512
"""The length of texts that the tables are first made for."""
ALIGNED = 8
"""Numbers of half precision in 16 bytes, which is how tensor cores want operands aligned."""


class PositionWindow(NamedTuple):
    """The rows of the position tables that occur in a batch, and the row of each distance."""

    rows: torch.Tensor
    origin: int
    """Where distance 0 is in ``rows``."""
    buckets: int
    low: int
    """The first row that occurs."""
    width: int


class PositionTables:
    """Which row of the position tables holds for each distance between two tokens.

    Texts may be longer than ``max_positions``, which only says how coarse the rows of large distances are: the tables
    grow with the longest text.
    """

    def __init__(self, buckets: int, max_positions: int, device: torch.device) -> None:
        self._buckets = buckets
        self._max_positions = max_positions
        self._device = device
        self._fill(FIRST_TOKENS)

    def _fill(self, tokens: int) -> None:
        self._origin = tokens
        distance = torch.arange(-tokens, tokens + 1)
        rows = (log_buckets(distance, self._buckets, self._max_positions) + self._buckets).clamp(
            0, 2 * self._buckets - 1
        )
        self._host = rows.tolist()
        self._rows = rows.to(torch.int32).to(self._device)

    def window(self, longest: int) -> PositionWindow:
        """The rows that occur in texts of up to ``longest`` tokens.

        Their first and their number are multiples of `ALIGNED`, as fast products need them: with others, products of
        positions took three times as long on an H200.
        """
        if longest > self._origin:
            self._fill(max(longest, 2 * self._origin))
        low, high = self._host[self._origin - longest + 1], self._host[self._origin + longest - 1]
        low = low // ALIGNED * ALIGNED
        width = min(-(-(high + 1 - low) // ALIGNED) * ALIGNED, 2 * self._buckets - low)
        return PositionWindow(self._rows, self._origin, self._buckets, low, width)


def log_buckets(distance: torch.Tensor, buckets: int, max_positions: int) -> torch.Tensor:
    """DeBERTa's buckets of relative positions: exact up to half the buckets, logarithmic beyond."""
    middle = buckets // 2
    size = torch.where(distance.abs() < middle, middle - 1, distance.abs()).double()
    far = torch.ceil(torch.log(size / middle) / math.log((max_positions - 1) / middle) * (middle - 1)) + middle
    return torch.where(size <= middle, distance, (far * distance.sign()).long())
