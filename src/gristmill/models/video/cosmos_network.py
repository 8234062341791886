"""The video side of Cosmos-Embed1: a vision transformer for each frame, and a Q-Former over all frames. Imports torch.

The vision transformer is EVA-ViT-g, as BLIP-2 uses it. The Q-Former is a BERT whose tokens are learned queries. Every
second layer also looks at the tokens of all frames. The mean of the queries is the embedding.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gristmill.models.loading import Tensors
from gristmill.models.video.cosmos_shape import CosmosShape
from gristmill.models.vision.blocks import Block
from gristmill.models.vision.preprocessing import Preprocessing
from gristmill.models.vision.vit import Normalize

QFORMER_EPSILON = 1e-12
VIT_EPSILON = 1e-6
LN_VISION_EPSILON = 1e-5


class FrameEncoder(nn.Module):
    """The tokens of each frame. Input: uint8, (frames, height, width, 3)."""

    def __init__(self, shape: CosmosShape, preprocessing: Preprocessing) -> None:
        super().__init__()
        self.patch = shape.patch
        self.normalize = Normalize(preprocessing)
        self.patches = nn.Linear(3 * shape.patch**2, shape.hidden)
        self.first = nn.Parameter(torch.zeros(1, shape.hidden))
        self.position = nn.Parameter(torch.zeros(1 + (shape.side // shape.patch) ** 2, shape.hidden))
        self.blocks = nn.ModuleList(
            Block(shape.hidden, shape.heads, shape.inner, "gelu", VIT_EPSILON, causal=False)
            for _ in range(shape.layers)
        )

    def forward(self, pixels: Tensor) -> Tensor:
        count, height, width, _ = pixels.shape
        size = self.patch
        cut = pixels.reshape(count, height // size, size, width // size, size, 3).transpose(2, 3)
        numbers = self.normalize(cut).to(self.patches.weight.dtype).reshape(count, -1, size * size * 3)
        x = torch.cat([self.first.expand(count, -1, -1), self.patches(numbers)], dim=1) + self.position
        for block in self.blocks:
            x = block(x)
        return x


class QueryAttention(nn.Module):
    """Attention of queries to tokens, added to the queries and normalized."""

    def __init__(self, hidden: int, heads: int, width: int) -> None:
        super().__init__()
        self.heads = heads
        self.query = nn.Linear(hidden, hidden)
        self.key = nn.Linear(width, hidden)
        self.value = nn.Linear(width, hidden)
        self.out = nn.Linear(hidden, hidden)
        self.norm = nn.LayerNorm(hidden, eps=QFORMER_EPSILON)

    def forward(self, x: Tensor, tokens: Tensor) -> Tensor:
        q, k, v = (self._by_head(one) for one in (self.query(x), self.key(tokens), self.value(tokens)))
        mixed = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        y: Tensor = self.norm(self.out(mixed) + x)
        return y

    def _by_head(self, x: Tensor) -> Tensor:
        return x.unflatten(2, (self.heads, -1)).transpose(1, 2)


class QueryLayer(nn.Module):
    """A layer of the Q-Former."""

    def __init__(self, shape: CosmosShape, sees_frames: bool) -> None:
        super().__init__()
        hidden = shape.query_hidden
        self.attention = QueryAttention(hidden, shape.query_heads, hidden)
        self.cross = QueryAttention(hidden, shape.query_heads, shape.hidden) if sees_frames else None
        self.fc1 = nn.Linear(hidden, shape.query_inner)
        self.fc2 = nn.Linear(shape.query_inner, hidden)
        self.norm = nn.LayerNorm(hidden, eps=QFORMER_EPSILON)

    def forward(self, x: Tensor, tokens: Tensor) -> Tensor:
        x = self.attention(x, x)
        if self.cross is not None:
            x = self.cross(x, tokens)
        y: Tensor = self.norm(self.fc2(F.gelu(self.fc1(x))) + x)
        return y


class CosmosEmbed1(nn.Module):
    """One embedding of length one for each clip. Input: uint8, (clips, frames, height, width, 3)."""

    def __init__(self, shape: CosmosShape, preprocessing: Preprocessing) -> None:
        super().__init__()
        self.frames = FrameEncoder(shape, preprocessing)
        self.norm_frames = nn.LayerNorm(shape.hidden, eps=LN_VISION_EPSILON)
        self.time = nn.Parameter(torch.zeros(shape.frames, 1, shape.hidden))
        self.queries = nn.Parameter(torch.zeros(1, shape.queries, shape.query_hidden))
        self.norm_queries = nn.LayerNorm(shape.query_hidden, eps=QFORMER_EPSILON)
        self.layers = nn.ModuleList(QueryLayer(shape, number in shape.cross) for number in range(shape.query_layers))
        self.projection = nn.Linear(shape.query_hidden, shape.width)

    def forward(self, pixels: Tensor) -> Tensor:
        clips, frames = pixels.shape[:2]
        tokens = self.norm_frames(self.frames(pixels.flatten(0, 1)))
        tokens = (tokens.unflatten(0, (clips, frames)) + self.time).flatten(1, 2)
        x = self.norm_queries(self.queries.expand(clips, -1, -1))
        for layer in self.layers:
            x = layer(x, tokens)
        return F.normalize(self.projection(x.mean(1)).float(), dim=1)


State = Iterator[tuple[str, Tensor]]


def network_state(shape: CosmosShape, tensors: Tensors) -> dict[str, Tensor]:
    """Return the weights of `CosmosEmbed1`, of those of a checkpoint."""
    return dict(_network(shape, tensors))


def _network(shape: CosmosShape, tensors: Tensors) -> State:
    vit = "visual_encoder."
    patch = tensors[f"{vit}patch_embed.proj.weight"]
    yield "frames.patches.weight", patch.permute(0, 2, 3, 1).reshape(shape.hidden, -1)
    yield "frames.patches.bias", tensors[f"{vit}patch_embed.proj.bias"]
    yield "frames.first", tensors[f"{vit}cls_token"][0]
    yield "frames.position", tensors[f"{vit}pos_embed"][0]
    for number in range(shape.layers):
        yield from _block(f"frames.blocks.{number}", f"{vit}blocks.{number}", tensors)
    yield from _both("norm_frames", "ln_vision", tensors)
    yield "time", tensors["temporal_encoding"].reshape(-1, 1, shape.hidden)
    yield "queries", tensors["query_tokens"]
    bert = shape.qformer
    yield from _both("norm_queries", f"{bert}embeddings.LayerNorm", tensors)
    for number in range(shape.query_layers):
        yield from _query_layer(f"layers.{number}", f"{bert}encoder.layer.{number}", number in shape.cross, tensors)
    yield from _both("projection", "vision_proj", tensors)


def _block(ours: str, theirs: str, tensors: Tensors) -> State:
    for name in ("norm1", "norm2"):
        yield from _both(f"{ours}.{name}", f"{theirs}.{name}", tensors)
    query, value = tensors[f"{theirs}.attn.q_bias"], tensors[f"{theirs}.attn.v_bias"]
    yield f"{ours}.attention.qkv.weight", tensors[f"{theirs}.attn.qkv.weight"]
    yield f"{ours}.attention.qkv.bias", torch.cat([query, torch.zeros_like(value), value])
    yield from _both(f"{ours}.attention.out", f"{theirs}.attn.proj", tensors)
    for name in ("fc1", "fc2"):
        yield from _both(f"{ours}.mlp.{name}", f"{theirs}.mlp.{name}", tensors)


def _query_layer(ours: str, theirs: str, sees_frames: bool, tensors: Tensors) -> State:
    names = {"attention": "attention", **({"cross": "crossattention"} if sees_frames else {})}
    for mine, name in names.items():
        for part in ("query", "key", "value"):
            yield from _both(f"{ours}.{mine}.{part}", f"{theirs}.{name}.self.{part}", tensors)
        yield from _both(f"{ours}.{mine}.out", f"{theirs}.{name}.output.dense", tensors)
        yield from _both(f"{ours}.{mine}.norm", f"{theirs}.{name}.output.LayerNorm", tensors)
    yield from _both(f"{ours}.fc1", f"{theirs}.intermediate_query.dense", tensors)
    yield from _both(f"{ours}.fc2", f"{theirs}.output_query.dense", tensors)
    yield from _both(f"{ours}.norm", f"{theirs}.output_query.LayerNorm", tensors)


def _both(ours: str, theirs: str, tensors: Tensors) -> State:
    for part in ("weight", "bias"):
        yield f"{ours}.{part}", tensors[f"{theirs}.{part}"]
