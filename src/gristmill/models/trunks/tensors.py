"""The weights of layers by name, on their device."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

Config = Mapping[str, Any]
"""The ``config.json`` of a checkpoint."""


class Norm(NamedTuple):
    """The weights of a layer norm."""

    weight: torch.Tensor
    bias: torch.Tensor
    eps: float


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
