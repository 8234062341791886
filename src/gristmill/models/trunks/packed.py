"""What trunks without padding share: weights by name, and a batch on its device."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from gristmill.lazy import np
from gristmill.models.gpu_kernels import BLOCK, Norm, query_tiles
from gristmill.models.model import Reads
from gristmill.models.tokens import TokenLists

Config = Mapping[str, Any]
"""The ``config.json`` of a checkpoint."""


@dataclass(frozen=True, slots=True)
class Linear:
    weight: torch.Tensor
    bias: torch.Tensor | None

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.linear(x, self.weight, self.bias)

    def gelu(self, x: torch.Tensor) -> torch.Tensor:
        """GELU of the product, computed with it, which saves writing and reading the largest tensor of a layer.

        It is the tanh form: at most .0005 from the exact one, less than half precision rounds numbers above 1 by.
        """
        if self.bias is None:
            return torch.nn.functional.gelu(self(x), approximate="tanh")
        return torch._addmm_activation(self.bias, x, self.weight.t(), use_gelu=True)


class DeviceWeights:
    """The tensors of a checkpoint by name, taken to a device as they are asked for."""

    def __init__(
        self, tensors: Mapping[str, torch.Tensor], device: torch.device, dtype: torch.dtype, prefix: str = ""
    ) -> None:
        self._tensors = tensors
        self.device = device
        self.dtype = dtype
        self._prefix = prefix

    def under(self, prefix: str) -> DeviceWeights:
        return DeviceWeights(self._tensors, self.device, self.dtype, self._prefix + prefix)

    def __contains__(self, name: str) -> bool:
        return self._prefix + name in self._tensors

    def get(self, name: str, dtype: torch.dtype | None = None) -> torch.Tensor:
        return self._tensors[self._prefix + name].to(self.device, dtype or self.dtype)

    def linear(self, *names: str) -> Linear:
        """One product for several layers with the same input, their outputs one after another."""
        weights = torch.cat([self.get(f"{name}.weight") for name in names])
        biases = [self.get(f"{name}.bias") for name in names if f"{name}.bias" in self]
        return Linear(weights, torch.cat(biases) if biases else None)

    def norm(self, name: str, eps: float) -> Norm:
        """Layer norms are computed in float32, and keep their weights in it."""
        return Norm(self.get(f"{name}.weight", torch.float32), self.get(f"{name}.bias", torch.float32), eps)


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
