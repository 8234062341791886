"""Vision transformers: CLIP, SigLIP and DINOv2. Imports torch."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from gristmill.models.vision.architectures import VitShape
from gristmill.models.vision.blocks import Attention, Block, Mlp
from gristmill.models.vision.preprocessing import Preprocessing


class Normalize(nn.Module):
    """uint8 pixels to the numbers that a model was trained on."""

    def __init__(self, preprocessing: Preprocessing) -> None:
        super().__init__()
        mean, std = torch.tensor(preprocessing.mean), torch.tensor(preprocessing.std)
        self.scale: Tensor
        self.shift: Tensor
        self.register_buffer("scale", preprocessing.factor / std, persistent=False)
        self.register_buffer("shift", -mean / std, persistent=False)

    def forward(self, pixels: Tensor) -> Tensor:
        return pixels.float() * self.scale + self.shift


class PoolingHead(nn.Module):
    """SigLIP's summary of all tokens: attention of one learned query, and two dense layers."""

    def __init__(self, shape: VitShape) -> None:
        super().__init__()
        self.probe = nn.Parameter(torch.zeros(1, 1, shape.hidden))
        self.attention = Attention(shape.hidden, shape.heads, causal=False)
        self.norm = nn.LayerNorm(shape.hidden, eps=shape.epsilon)
        self.mlp = Mlp(shape.hidden, shape.inner, shape.activation)

    def forward(self, x: Tensor) -> Tensor:
        pooled = self.attention.of_one(self.probe, x)
        y: Tensor = pooled + self.mlp(self.norm(pooled))
        return y


class Vit(nn.Module):
    """One row of numbers for each image. Input: uint8, (images, height, width, 3)."""

    def __init__(self, shape: VitShape, preprocessing: Preprocessing) -> None:
        super().__init__()
        self.shape = shape
        self.grid = (preprocessing.shape[0] // shape.patch, preprocessing.shape[1] // shape.patch)
        hidden, is_clip, is_siglip = shape.hidden, shape.kind == "clip", shape.kind == "siglip"
        self.normalize = Normalize(preprocessing)
        self.patches = nn.Linear(shape.patch * shape.patch * 3, hidden)
        self.position = nn.Parameter(torch.zeros(self.grid[0] * self.grid[1], hidden))
        first = 0 if is_siglip else 1 + shape.registers
        self.first = nn.Parameter(torch.zeros(first, hidden))
        """The tokens before those of patches, with their positions added."""
        self.norm_before = nn.LayerNorm(hidden, eps=shape.epsilon) if is_clip else nn.Identity()
        self.blocks = nn.ModuleList(
            Block(hidden, shape.heads, shape.inner, shape.activation, shape.epsilon, False, shape.swiglu)
            for _ in range(shape.layers)
        )
        self.norm_after = nn.LayerNorm(hidden, eps=shape.epsilon)
        self.head = PoolingHead(shape) if is_siglip else None
        self.projection = None if shape.projection is None else nn.Linear(hidden, shape.projection, bias=False)

    def forward(self, pixels: Tensor) -> Tensor:
        x = self.patches(self._patches(pixels)) + self.position
        if len(self.first):
            x = torch.cat([self.first.expand(len(x), -1, -1), x], dim=1)
        x = self.norm_before(x)
        for block in self.blocks[:-1]:
            x = block(x)
        last: Any = self.blocks[-1]
        x = self.norm_after(last.of_first(x)) if self.head is None else self.head(self.norm_after(last(x)))
        return x if self.projection is None else self.projection(x)

    def _patches(self, pixels: Tensor) -> Tensor:
        """The numbers of each patch: (images, patches, patch * patch * 3)."""
        count, (rows, columns), size = len(pixels), self.grid, self.shape.patch
        pixels = pixels[:, : rows * size, : columns * size]
        cut = pixels.reshape(count, rows, size, columns, size, 3).transpose(2, 3)
        numbers = self.normalize(cut).to(self.patches.weight.dtype)
        return numbers.reshape(count, rows * columns, size * size * 3)
