"""DeBERTa v2 and v3 on packed sequences."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch

from gristmill.models.gpu_kernels import add_norm, disentangled_attention, embed
from gristmill.models.model import ENDLESS, Reads, Trunk
from gristmill.models.tokens import TokenLists
from gristmill.models.trunks.packed import PackedBatch
from gristmill.models.trunks.relative import PositionTables, PositionWindow
from gristmill.models.trunks.tensors import Config, DeviceWeights, Linear, Norm


@dataclass(frozen=True, slots=True)
class _DebertaLayer:
    qkv: Linear
    position_keys: torch.Tensor
    position_queries: torch.Tensor
    attended: Linear
    attended_norm: Norm
    grow: Linear
    shrink: Linear
    norm: Norm


class DebertaTrunk(Trunk):
    """DeBERTa with the relative positions of its versions 2 and 3. ``tensors`` are named as in ``AutoModel``."""

    def __init__(self, config: Config, tensors: Mapping[str, torch.Tensor], device: torch.device, dtype: torch.dtype):
        weights = DeviceWeights(tensors, device, dtype)
        self.device = device
        self.heads = int(config["num_attention_heads"])
        self.max_tokens = ENDLESS  # positions are relative
        self.eps = float(config.get("layer_norm_eps", 1e-7))
        self.words = weights.get("embeddings.word_embeddings.weight")
        self.vocabulary = len(self.words)
        self.words_norm = weights.norm("embeddings.LayerNorm", self.eps)
        buckets, most = int(config["position_buckets"]), int(config.get("max_relative_positions", -1))
        self.tables = PositionTables(buckets, int(config["max_position_embeddings"]) if most < 1 else most, device)
        encoder = weights.under("encoder.")
        positions = encoder.get("rel_embeddings.weight", torch.float32)[: 2 * buckets]
        if "layer_norm" in str(config.get("norm_rel_ebd", "none")):
            norm = encoder.norm("LayerNorm", self.eps)
            positions = torch.nn.functional.layer_norm(positions, positions.shape[1:], norm.weight, norm.bias, self.eps)
        self.layers = [
            self._layer(encoder.under(f"layer.{i}."), positions.to(dtype)) for i in range(config["num_hidden_layers"])
        ]

    def _layer(self, weights: DeviceWeights, positions: torch.Tensor) -> _DebertaLayer:
        attention = weights.under("attention.self.")
        return _DebertaLayer(
            qkv=attention.linear("query_proj", "key_proj", "value_proj"),
            position_keys=self._by_head(attention.linear("key_proj")(positions)),
            position_queries=self._by_head(attention.linear("query_proj")(positions)),
            attended=weights.linear("attention.output.dense"),
            attended_norm=weights.norm("attention.output.LayerNorm", self.eps),
            grow=weights.linear("intermediate.dense"),
            shrink=weights.linear("output.dense"),
            norm=weights.norm("output.LayerNorm", self.eps),
        )

    def _by_head(self, x: torch.Tensor) -> torch.Tensor:
        return x.view(len(x), self.heads, -1).permute(1, 2, 0).contiguous()

    def hidden(self, tokens: TokenLists, reads: Reads) -> torch.Tensor:
        batch = PackedBatch.of(tokens, reads, self.device)
        x = embed(batch.ids, self.words, self.words_norm)
        window = self.tables.window(batch.longest)
        for layer in self.layers[:-1]:
            x = self._through(layer, x, batch.tiles, batch, window)
        return self._through(self.layers[-1], x, batch.read_tiles, batch, window, is_last=True)

    def _through(
        self,
        layer: _DebertaLayer,
        x: torch.Tensor,
        tiles: torch.Tensor,
        batch: PackedBatch,
        window: PositionWindow,
        is_last: bool = False,
    ) -> torch.Tensor:
        """One layer. The last one computes only what is read."""
        qkv = layer.qkv(x).view(len(x), 3, self.heads, -1)
        attended = disentangled_attention(qkv, tiles, window, layer.position_keys, layer.position_queries)
        if is_last:
            attended, x = batch.rows(attended), batch.rows(x)
        x = add_norm(layer.attended(attended), x, layer.attended_norm)
        return add_norm(layer.shrink(layer.grow.gelu(x)), x, layer.norm)
