"""Dense layers on a CPU, by oneDNN where torch has it.

oneDNN compiles its products for the CPU that it runs on. On an AMD CPU with AVX-512 they are 2.3 times as fast as those
of MKL, which torch takes for float32 by itself. It also adds GELU and residuals while it writes the product.
"""

from __future__ import annotations

import platform
from abc import ABC, abstractmethod

import torch
from torch.nn import functional

from gristmill.models.trunks.tensors import Linear

USUAL_ROWS = 512
"""The weights are laid out for products with so many rows. Others are right too."""


class CpuLinear(ABC):
    """A dense layer. It takes float32 or its own type."""

    dtype: torch.dtype
    """Of its products."""

    @abstractmethod
    def __call__(self, x: torch.Tensor) -> torch.Tensor: ...

    @abstractmethod
    def gelu(self, x: torch.Tensor) -> torch.Tensor:
        """The exact GELU of the product."""

    @abstractmethod
    def plus(self, x: torch.Tensor, residual: torch.Tensor) -> torch.Tensor:
        """The product plus ``residual``, float32."""


class OneDnnLinear(CpuLinear):
    """Its rows do not depend on each other to the last bit: those of a product are the same in any other product."""

    def __init__(self, linear: Linear, dtype: torch.dtype) -> None:
        self.dtype = dtype
        self._weight = torch.ops.mkldnn._reorder_linear_weight(
            linear.weight.detach().to(dtype).contiguous(), USUAL_ROWS
        )
        self._bias = None if linear.bias is None else linear.bias.detach().to(dtype)

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return self._product(x, "none", "")

    def gelu(self, x: torch.Tensor) -> torch.Tensor:
        return self._product(x, "gelu", "none")

    def plus(self, x: torch.Tensor, residual: torch.Tensor) -> torch.Tensor:
        if self.dtype != torch.float32 or len(x) == 1:
            return self(x).float().add_(residual)
        total: torch.Tensor = torch.ops.mkldnn._linear_pointwise.binary(x, residual, self._weight, self._bias, "add")
        return total

    def _product(self, x: torch.Tensor, after: str, form: str) -> torch.Tensor:
        rows = x.to(self.dtype)
        if len(x) == 1:  # a single row would be computed in another way, and differ in its last bits
            rows = rows.expand(2, -1).contiguous()
        product: torch.Tensor = torch.ops.mkldnn._linear_pointwise(rows, self._weight, self._bias, after, [], form)
        return product[: len(x)]


class PlainLinear(CpuLinear):
    """Torch's own product, in float32."""

    dtype = torch.float32

    def __init__(self, linear: Linear) -> None:
        self._linear = linear

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return self._linear(x)

    def gelu(self, x: torch.Tensor) -> torch.Tensor:
        return functional.gelu(self._linear(x))

    def plus(self, x: torch.Tensor, residual: torch.Tensor) -> torch.Tensor:
        return self._linear(x).add_(residual)


class OneDnnModule(torch.nn.Module):
    """A dense layer of transformers, float32."""

    def __init__(self, layer: torch.nn.Linear) -> None:
        super().__init__()
        self._linear = OneDnnLinear(Linear(layer.weight, layer.bias), torch.float32)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self._linear(x.reshape(-1, x.shape[-1])).view(*x.shape[:-1], -1)


def use_onednn(model: torch.nn.Module) -> None:
    """Replace the dense layers of a float32 model on a CPU, if oneDNN is there. Their weights are no longer parameters.

    So the model must call its layers, and not read their weights.
    """
    if not has_onednn():
        return
    for module in list(model.modules()):
        for name, layer in list(module.named_children()):
            if type(layer) is torch.nn.Linear:
                setattr(module, name, OneDnnModule(layer))


def cpu_linear(linear: Linear, dtype: torch.dtype) -> CpuLinear:
    """The fastest dense layer with these weights. Without oneDNN its products are float32."""
    return OneDnnLinear(linear, dtype) if has_onednn() else PlainLinear(linear)


def has_onednn() -> bool:
    """Whether this torch has oneDNN's products, which it offers to its own compiler, not as a public function."""
    return (
        platform.machine() in ("x86_64", "AMD64")
        and torch.backends.mkldnn.is_available()
        and torch._C._dispatch_has_kernel_for_dispatch_key("mkldnn::_linear_pointwise", "CPU")
    )


def has_bfloat16() -> bool:
    """Whether products in bfloat16 are faster here: the CPU has instructions for them."""
    known = torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()
    return has_onednn() and known
