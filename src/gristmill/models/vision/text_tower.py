"""The text models of CLIP and SigLIP. Imports torch."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from gristmill.models.loading import Tensors
from gristmill.models.vision.blocks import Block
from gristmill.models.vision.texts import TextShape
from gristmill.models.vision.vit_weights import block_state

LEGACY_EOS = 2
"""The end of a text in configurations of before it was right: it is the token with the highest id instead."""


class TextTower(nn.Module):
    """One row of numbers for each text. Input: int32, (texts, tokens), filled up to the same length."""

    def __init__(self, shape: TextShape) -> None:
        super().__init__()
        self.shape = shape
        self.tokens = nn.Embedding(shape.vocabulary, shape.hidden)
        self.position = nn.Parameter(torch.zeros(shape.length, shape.hidden))
        is_causal = shape.kind == "clip"
        self.blocks = nn.ModuleList(
            Block(shape.hidden, shape.heads, shape.inner, shape.activation, shape.epsilon, is_causal)
            for _ in range(shape.layers)
        )
        self.norm_after = nn.LayerNorm(shape.hidden, eps=shape.epsilon)
        self.projection = nn.Linear(shape.hidden, shape.width, bias=not is_causal)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.tokens(ids) + self.position
        for block in self.blocks:
            x = block(x)
        x = self.norm_after(x)
        if self.shape.kind == "siglip":
            last = x[:, -1]
        else:
            end = self.shape.end
            where = ids.argmax(dim=-1) if end == LEGACY_EOS else (ids == end).int().argmax(dim=-1)
            last = x[torch.arange(len(x), device=x.device), where]
        y: Tensor = self.projection(last)
        return y


def text_state(shape: TextShape, tensors: Tensors) -> dict[str, Tensor]:
    """Return the weights of a `TextTower`, of those of a checkpoint."""
    state = {
        "tokens.weight": tensors["text_model.embeddings.token_embedding.weight"],
        "position": tensors["text_model.embeddings.position_embedding.weight"],
    }
    for layer in range(shape.layers):
        state |= dict(block_state(f"blocks.{layer}", f"text_model.encoder.layers.{layer}", tensors))
    for part in ("weight", "bias"):
        state[f"norm_after.{part}"] = tensors[f"text_model.final_layer_norm.{part}"]
    if shape.kind == "clip":
        return state | {"projection.weight": tensors["text_projection.weight"]}
    return state | {f"projection.{part}": tensors[f"text_model.head.{part}"] for part in ("weight", "bias")}
