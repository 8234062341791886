"""Attention among the patches of frames, all windows of a size at once. Imports torch.

In the Qwen-VL family, patches attend to those of their frame, or of their window of 8 x 8. Without kernels for
sequences of several lengths, transformers computes windows one by one: a batch of clips has thousands in each layer.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

KINDS = ("VisionAttention", "Qwen2_5_VLVisionAttention", "Qwen3VLVisionAttention")
"""The classes of transformers that are replaced."""
Groups = list[Tensor]
"""The places of all sequences of a length, for each length: (sequences, length)."""


class GroupedAttention(nn.Module):
    """The attention of a vision model of the Qwen-VL family, with its weights."""

    def __init__(self, theirs: Any, seen: SeenGroups) -> None:
        super().__init__()
        self.heads = int(theirs.num_heads)
        self.qkv = theirs.qkv
        self.proj = theirs.proj
        self._seen = [seen]  # in a list: it is no part of the module

    def forward(
        self, hidden_states: Tensor, cu_seqlens: Tensor, position_embeddings: tuple[Tensor, Tensor], **others: Any
    ) -> Tensor:
        """Return the states after attention. ``cu_seqlens``: where sequences begin, and the end."""
        count = len(hidden_states)
        query, key, value = self.qkv(hidden_states).reshape(count, 3, self.heads, -1).unbind(1)
        cos, sin = (one.float().unsqueeze(1) for one in position_embeddings)
        query, key = rotated(query, cos, sin), rotated(key, cos, sin)
        mixed = torch.empty_like(value)
        for places in self._seen[0].of(cu_seqlens):
            q, k, v = (one[places].transpose(1, 2) for one in (query, key, value))
            mixed[places] = F.scaled_dot_product_attention(q, k, v).transpose(1, 2)
        states: Tensor = self.proj(mixed.reshape(count, -1))
        return states


class SeenGroups:
    """The groups of the last few layouts: all layers of a batch have the same two."""

    def __init__(self) -> None:
        self._seen: list[tuple[Tensor, Groups]] = []

    def of(self, bounds: Tensor) -> Groups:
        """Return the places of all sequences of each length."""
        for one, groups in self._seen:
            if one is bounds:
                return groups
        found = groups_of(bounds)
        self._seen = [*self._seen[-1:], (bounds, found)]
        return found


def groups_of(bounds: Tensor) -> Groups:
    """Return the places of all sequences of each length. ``bounds``: where sequences begin, and the end."""
    starts, lengths = bounds[:-1], bounds[1:] - bounds[:-1]
    groups = []
    for length in lengths.unique().tolist():
        if length:
            first = starts[lengths == length]
            groups.append(first[:, None] + torch.arange(length, device=bounds.device))
    return groups


def rotated(states: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Return states turned by their places, computed in 32 bits."""
    exact = states.float()
    first, second = exact.chunk(2, dim=-1)
    return (exact * cos + torch.cat([-second, first], dim=-1) * sin).to(states.dtype)


def group_attention(model: nn.Module) -> int:
    """Replace the attention of a model's vision layers. Return how many there are."""
    seen = SeenGroups()
    places = [
        (parent, name, child)
        for parent in model.modules()
        for name, child in parent.named_children()
        if type(child).__name__ in KINDS
    ]
    for parent, name, child in places:
        setattr(parent, name, GroupedAttention(child, seen))
    return len(places)
