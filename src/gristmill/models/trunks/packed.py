"""A batch of texts without padding on its GPU."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from gristmill.lazy import np
from gristmill.models.gpu_kernels import BLOCK, query_tiles
from gristmill.models.model import Reads
from gristmill.models.tokens import TokenLists


@dataclass(frozen=True, slots=True)
class PackedBatch:
    """Texts on their device, one after another."""

    ids: torch.Tensor
    offsets: torch.Tensor
    """int32."""
    positions: torch.Tensor
    """The position of each token in its text."""
    tiles: torch.Tensor
    """See `query_tiles`."""
    longest: int
    read: torch.Tensor | None
    """The tokens that a head reads; None for all."""
    read_tiles: torch.Tensor
    """The tiles that hold these tokens."""

    @classmethod
    def of(cls, tokens: TokenLists, reads: Reads, device: torch.device) -> PackedBatch:
        offsets = tokens.offsets
        lengths = tokens.lengths
        tiles = query_tiles(offsets)
        positions = np.arange(offsets[-1]) - np.repeat(offsets[:-1], lengths)
        read, read_tiles = None, tiles
        if reads == "first":
            read, read_tiles = offsets[:-1], tiles[tiles[:, 2] == 0]
        elif reads == "last":
            read, read_tiles = offsets[1:] - 1, tiles[tiles[:, 2] == (tiles[:, 1] - 1) // BLOCK * BLOCK]
        return cls(
            ids=to_device(tokens.ids, device),
            offsets=to_device(offsets, device),
            positions=to_device(positions, device),
            tiles=to_device(tiles, device),
            longest=int(lengths.max(initial=0)),
            read=None if read is None else to_device(read, device),
            read_tiles=to_device(read_tiles, device),
        )

    def rows(self, x: torch.Tensor) -> torch.Tensor:
        """The rows that a head reads."""
        return x if self.read is None else x[self.read]


def to_device(array: Any, device: torch.device) -> torch.Tensor:
    """Copy to the device as int32, without waiting for it."""
    tensor = torch.from_numpy(np.ascontiguousarray(array, dtype=np.int32))
    if device.type == "cuda":
        tensor = tensor.pin_memory()
    return tensor.to(device, non_blocking=True)
