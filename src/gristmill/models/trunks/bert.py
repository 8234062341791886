"""BERT, RoBERTa and their descendants on packed sequences."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch

from gristmill.models.gpu_kernels import Norm, add_norm, attention, embed
from gristmill.models.model import Reads, Trunk
from gristmill.models.tokens import TokenLists
from gristmill.models.trunks.packed import Config, DeviceWeights, Linear, PackedBatch

ROBERTAS = ("roberta", "xlm-roberta", "camembert")


@dataclass(frozen=True, slots=True)
class _BertLayer:
    qkv: Linear
    attended: Linear
    attended_norm: Norm
    grow: Linear
    shrink: Linear
    norm: Norm


class BertTrunk(Trunk):
    """BERT with absolute positions. RoBERTa and its like count positions from the id of padding plus one.

    ``tensors`` are named as in the ``AutoModel`` of transformers.
    """

    def __init__(self, config: Config, tensors: Mapping[str, torch.Tensor], device: torch.device, dtype: torch.dtype):
        weights = DeviceWeights(tensors, device, dtype)
        self.device = device
        self.heads = int(config["num_attention_heads"])
        first = int(config["pad_token_id"]) + 1 if config["model_type"] in ROBERTAS else 0
        self.max_tokens = int(config["max_position_embeddings"]) - first
        self.eps = float(config.get("layer_norm_eps", 1e-12))
        self.words = weights.get("embeddings.word_embeddings.weight")
        kind = weights.get("embeddings.token_type_embeddings.weight", torch.float32)[0]
        positions = weights.get("embeddings.position_embeddings.weight", torch.float32)[first:]
        self.positions = positions + kind
        self.words_norm = weights.norm("embeddings.LayerNorm", self.eps)
        self.layers = [self._layer(weights.under(f"encoder.layer.{i}.")) for i in range(config["num_hidden_layers"])]

    def _layer(self, weights: DeviceWeights) -> _BertLayer:
        return _BertLayer(
            qkv=weights.under("attention.self.").linear("query", "key", "value"),
            attended=weights.linear("attention.output.dense"),
            attended_norm=weights.norm("attention.output.LayerNorm", self.eps),
            grow=weights.linear("intermediate.dense"),
            shrink=weights.linear("output.dense"),
            norm=weights.norm("output.LayerNorm", self.eps),
        )

    def hidden(self, tokens: TokenLists, reads: Reads) -> torch.Tensor:
        batch = PackedBatch.of(tokens, reads, self.device)
        x = embed(batch.ids, self.words, self.words_norm, batch.positions, self.positions)
        for layer in self.layers[:-1]:
            x = self._through(layer, x, batch.tiles, batch)
        return self._through(self.layers[-1], x, batch.read_tiles, batch, is_last=True)

    def _through(
        self, layer: _BertLayer, x: torch.Tensor, tiles: torch.Tensor, batch: PackedBatch, is_last: bool = False
    ) -> torch.Tensor:
        """One layer. The last one computes only what is read."""
        attended = attention(layer.qkv(x).view(len(x), 3, self.heads, -1), tiles)
        if is_last:
            attended, x = batch.rows(attended), batch.rows(x)
        x = add_norm(layer.attended(attended), x, layer.attended_norm)
        return add_norm(layer.shrink(layer.grow.gelu(x)), x, layer.norm)
