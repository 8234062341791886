"""Llama and models of its shape on packed sequences, with a common prefix that is computed once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

import torch
from torch.nn.attention.varlen import AuxRequest, varlen_attn

from gristmill.models.gpu_kernels import rms_norm, rotate, silu_product
from gristmill.models.model import Reads, Trunk
from gristmill.models.tokens import TokenLists
from gristmill.models.trunks.packed import PackedBatch, to_device
from gristmill.models.trunks.tensors import Config, DeviceWeights, Linear

CAUSAL = (-1, 0)
"""The window of a token: all before it, none after it."""


@dataclass(frozen=True, slots=True)
class _LlamaLayer:
    norm: torch.Tensor
    qkv: Linear
    attended: Linear
    grow_norm: torch.Tensor
    grow: Linear
    shrink: Linear


@dataclass(frozen=True, slots=True)
class _Prefix:
    """Keys and values of the tokens that all texts begin with, by layer."""

    length: int
    keys: list[torch.Tensor]
    values: list[torch.Tensor]


class LlamaTrunk(Trunk):
    """Llama, Mistral and Qwen 2 without scaled rotary positions. Reading the last token is what classifiers do."""

    def __init__(
        self,
        config: Config,
        tensors: Mapping[str, torch.Tensor],
        device: torch.device,
        dtype: torch.dtype,
        prefix: TokenLists | None = None,
    ):
        """``tensors`` are named as in ``AutoModel``. ``prefix`` is one list of tokens that every text continues."""
        weights = DeviceWeights(tensors, device, dtype)
        self.device = device
        self.heads = int(config["num_attention_heads"])
        self.key_heads = int(config.get("num_key_value_heads") or self.heads)
        self.dim = int(config.get("head_dim") or config["hidden_size"] // self.heads)
        self.eps = float(config["rms_norm_eps"])
        self.words = weights.get("embed_tokens.weight")
        self.vocabulary = len(self.words)
        self.norm = weights.get("norm.weight", torch.float32)
        longest = int(config["max_position_embeddings"])
        theta = float(config.get("rope_theta") or (config.get("rope_parameters") or {}).get("rope_theta", 10_000.0))
        speeds = theta ** (-torch.arange(0, self.dim, 2, dtype=torch.float64) / self.dim)
        angles = torch.arange(longest, dtype=torch.float64)[:, None] * speeds
        self.cosine = angles.cos().to(device, torch.float32)
        self.sine = angles.sin().to(device, torch.float32)
        self.layers = [self._layer(weights.under(f"layers.{i}.")) for i in range(config["num_hidden_layers"])]
        self.prefix: _Prefix | None = None
        self.max_tokens = longest
        if prefix is not None:
            self.prefix = self._compute_prefix(prefix)
            self.max_tokens -= self.prefix.length

    def _layer(self, weights: DeviceWeights) -> _LlamaLayer:
        return _LlamaLayer(
            norm=weights.get("input_layernorm.weight", torch.float32),
            qkv=weights.under("self_attn.").linear("q_proj", "k_proj", "v_proj"),
            attended=weights.linear("self_attn.o_proj"),
            grow_norm=weights.get("post_attention_layernorm.weight", torch.float32),
            grow=weights.linear("mlp.gate_proj", "mlp.up_proj"),
            shrink=weights.linear("mlp.down_proj"),
        )

    def _compute_prefix(self, prefix: TokenLists) -> _Prefix:
        made = _Prefix(int(prefix.offsets[-1]), [], [])
        with torch.inference_mode():
            self._run(PackedBatch.of(prefix, "last", self.device), made)
        return made

    def hidden(self, tokens: TokenLists, reads: Reads) -> torch.Tensor:
        return self._run(PackedBatch.of(tokens, reads, self.device))

    def _run(self, batch: PackedBatch, keep: _Prefix | None = None) -> torch.Tensor:
        positions = batch.positions + (self.prefix.length if self.prefix is not None else 0)
        residual = torch.nn.functional.embedding(batch.ids, self.words)
        x = rms_norm(residual, self.layers[0].norm, self.eps)
        for index, layer in enumerate(self.layers):
            qkv = layer.qkv(x).view(len(x), self.heads + 2 * self.key_heads, self.dim)
            rotate(qkv[:, : self.heads + self.key_heads], self.cosine, self.sine, positions)
            q, k, v = qkv.split([self.heads, self.key_heads, self.key_heads], dim=1)
            if keep is not None:
                keep.keys.append(k.clone())
                keep.values.append(v.clone())
            attended = self._attend(index, q, k, v, batch).reshape(len(x), -1)
            if index == len(self.layers) - 1:
                attended, residual = batch.rows(attended), batch.rows(residual)
            x = rms_norm(layer.attended(attended), layer.grow_norm, self.eps, residual)
            x = layer.shrink(silu_product(layer.grow(x)))
            following = self.layers[index + 1].norm if index + 1 < len(self.layers) else self.norm
            x = rms_norm(x, following, self.eps, residual)
        return x

    def _attend(
        self, index: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, batch: PackedBatch
    ) -> torch.Tensor:
        ends, longest = batch.offsets, batch.longest
        keys, values = self._for_all(k), self._for_all(v)
        if self.prefix is None:
            alone = varlen_attn(q, keys, values, ends, ends, longest, longest, window_size=CAUSAL)
            return cast(torch.Tensor, alone)  # a pair only if more is asked for
        with_sums = AuxRequest(lse=True)
        texts, sums = varlen_attn(
            q, keys, values, ends, ends, longest, longest, window_size=CAUSAL, return_aux=with_sums
        )
        keys, values = self._for_all(self.prefix.keys[index]), self._for_all(self.prefix.values[index])
        count = self.prefix.length
        all_queries, prefix_ends = to_device([0, len(q)], self.device), to_device([0, count], self.device)
        before, before_sums = varlen_attn(
            q, keys, values, all_queries, prefix_ends, len(q), count, return_aux=with_sums
        )
        share = torch.sigmoid(before_sums - sums).transpose(0, 1)[:, :, None].to(q.dtype)
        return torch.lerp(texts, before, share)

    def _for_all(self, x: torch.Tensor) -> torch.Tensor:
        """Keys or values for each head, where several heads share them."""
        return x if self.key_heads == self.heads else x.repeat_interleave(self.heads // self.key_heads, dim=1)
