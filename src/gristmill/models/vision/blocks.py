"""The layers that the image model and the text model of CLIP and SigLIP have in common. Imports torch."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def _quick_gelu(x: Tensor) -> Tensor:
    return x * torch.sigmoid(1.702 * x)


def _tanh_gelu(x: Tensor) -> Tensor:
    return F.gelu(x, approximate="tanh")


_ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu": F.gelu,
    "quick_gelu": _quick_gelu,
    "gelu_pytorch_tanh": _tanh_gelu,
    "gelu_new": _tanh_gelu,
    "gelu_fast": _tanh_gelu,
}


class Mlp(nn.Module):
    """Two dense layers with an activation between them, or SwiGLU."""

    def __init__(self, hidden: int, inner: int, activation: str, swiglu: bool = False) -> None:
        super().__init__()
        if swiglu:
            inner = (int(inner * 2 / 3) + 7) // 8 * 8
        self.swiglu = swiglu
        self.activation = _ACTIVATIONS[activation]
        self.fc1 = nn.Linear(hidden, 2 * inner if swiglu else inner)
        self.fc2 = nn.Linear(inner, hidden)

    def forward(self, x: Tensor) -> Tensor:
        x = self.fc1(x)
        if self.swiglu:
            gate, x = x.chunk(2, dim=-1)
            x = F.silu(gate) * x
        else:
            x = self.activation(x)
        y: Tensor = self.fc2(x)
        return y


class Attention(nn.Module):
    """Attention among all tokens of an item, or among each and those before it."""

    def __init__(self, hidden: int, heads: int, causal: bool) -> None:
        super().__init__()
        self.heads = heads
        self.causal = causal
        self.qkv = nn.Linear(hidden, 3 * hidden)
        self.out = nn.Linear(hidden, hidden)

    def forward(self, x: Tensor) -> Tensor:
        count, tokens, hidden = x.shape
        q, k, v = self.qkv(x).view(count, tokens, 3, self.heads, hidden // self.heads).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        y: Tensor = self.out(mixed.transpose(1, 2).reshape(count, tokens, hidden))
        return y

    def of_first(self, x: Tensor) -> Tensor:
        """The attention of the first token of each item among all of its tokens: (items, hidden)."""
        return self.of_one(x[:, :1], x)

    def of_one(self, token: Tensor, x: Tensor) -> Tensor:
        """The attention of one token among all tokens of each item: (items, hidden).

        ``token``: one for each item, (items, 1, hidden), or one for all.
        """
        count, _, hidden = x.shape
        weight, bias = self.qkv.weight, self.qkv.bias
        query = F.linear(token, weight[:hidden], bias[:hidden]).expand(count, 1, hidden)
        key, value = F.linear(x, weight[hidden:], bias[hidden:]).chunk(2, dim=-1)
        size = hidden // self.heads
        q, k, v = (one.reshape(count, -1, self.heads, size).transpose(1, 2) for one in (query, key, value))
        mixed = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(count, hidden)
        y: Tensor = self.out(mixed)
        return y


class Block(nn.Module):
    """One layer: attention and two dense layers, each after a normalization and added to its input."""

    def __init__(
        self, hidden: int, heads: int, inner: int, activation: str, epsilon: float, causal: bool, swiglu: bool = False
    ) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(hidden, eps=epsilon)
        self.attention = Attention(hidden, heads, causal)
        self.norm2 = nn.LayerNorm(hidden, eps=epsilon)
        self.mlp = Mlp(hidden, inner, activation, swiglu)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norm1(x))
        y: Tensor = x + self.mlp(self.norm2(x))
        return y

    def of_first(self, x: Tensor) -> Tensor:
        """The result for the first token of each item alone, (items, hidden), which saves most of the work."""
        first = x[:, 0] + self.attention.of_first(self.norm1(x))
        y: Tensor = first + self.mlp(self.norm2(first))
        return y
