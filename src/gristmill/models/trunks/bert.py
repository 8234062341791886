"""BERT, RoBERTa and their descendants on packed sequences, on a GPU."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from gristmill.models.gpu_kernels import add_norm, attention, embed
from gristmill.models.model import Reads, Trunk
from gristmill.models.tokens import TokenLists
from gristmill.models.trunks.bert_weights import BertLayer, BertWeights
from gristmill.models.trunks.packed import PackedBatch
from gristmill.models.trunks.tensors import Config


class BertTrunk(Trunk):
    """BERT with absolute positions. ``tensors`` are named as in the ``AutoModel`` of transformers."""

    def __init__(self, config: Config, tensors: Mapping[str, torch.Tensor], device: torch.device, dtype: torch.dtype):
        self.device = device
        self.weights = BertWeights.of(config, tensors, device, dtype)
        self.max_tokens = len(self.weights.positions)
        self.vocabulary = len(self.weights.words)

    def hidden(self, tokens: TokenLists, reads: Reads) -> torch.Tensor:
        batch = PackedBatch.of(tokens, reads, self.device)
        weights = self.weights
        x = embed(batch.ids, weights.words, weights.words_norm, batch.positions, weights.positions)
        for layer in weights.layers[:-1]:
            x = self._through(layer, x, batch.tiles, batch)
        return self._through(weights.layers[-1], x, batch.read_tiles, batch, is_last=True)

    def _through(
        self, layer: BertLayer, x: torch.Tensor, tiles: torch.Tensor, batch: PackedBatch, is_last: bool = False
    ) -> torch.Tensor:
        """One layer. The last one computes only what is read."""
        attended = attention(layer.qkv(x).view(len(x), 3, self.weights.heads, -1), tiles)
        if is_last:
            attended, x = batch.rows(attended), batch.rows(x)
        x = add_norm(layer.attended(attended), x, layer.attended_norm)
        return add_norm(layer.shrink(layer.grow.gelu(x)), x, layer.norm)
