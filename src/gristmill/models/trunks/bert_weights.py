"""The weights of BERT, RoBERTa and their descendants."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch

from gristmill.models.trunks.tensors import Config, DeviceWeights, Linear, Norm

ROBERTAS = ("roberta", "xlm-roberta", "camembert")


@dataclass(frozen=True, slots=True)
class BertLayer:
    qkv: Linear
    attended: Linear
    attended_norm: Norm
    grow: Linear
    shrink: Linear
    norm: Norm


@dataclass(frozen=True, slots=True)
class BertWeights:
    """BERT with absolute positions. RoBERTa and its like count positions from the id of padding plus one."""

    heads: int
    words: torch.Tensor
    positions: torch.Tensor
    """The vector that is added to the word embedding at each position of a text: float32, a row for each position."""
    words_norm: Norm
    layers: list[BertLayer]

    @classmethod
    def of(
        cls, config: Config, tensors: Mapping[str, torch.Tensor], device: torch.device, dtype: torch.dtype
    ) -> BertWeights:
        """``tensors`` are named as in the ``AutoModel`` of transformers."""
        weights = DeviceWeights(tensors, device, dtype)
        first = int(config["pad_token_id"]) + 1 if config["model_type"] in ROBERTAS else 0
        eps = float(config.get("layer_norm_eps", 1e-12))
        kind = weights.get("embeddings.token_type_embeddings.weight", torch.float32)[0]
        positions = weights.get("embeddings.position_embeddings.weight", torch.float32)[first:]
        return cls(
            heads=int(config["num_attention_heads"]),
            words=weights.get("embeddings.word_embeddings.weight"),
            positions=positions + kind,
            words_norm=weights.norm("embeddings.LayerNorm", eps),
            layers=[_layer(weights.under(f"encoder.layer.{i}."), eps) for i in range(int(config["num_hidden_layers"]))],
        )


def _layer(weights: DeviceWeights, eps: float) -> BertLayer:
    return BertLayer(
        qkv=weights.under("attention.self.").linear("query", "key", "value"),
        attended=weights.linear("attention.output.dense"),
        attended_norm=weights.norm("attention.output.LayerNorm", eps),
        grow=weights.linear("intermediate.dense"),
        shrink=weights.linear("output.dense"),
        norm=weights.norm("output.LayerNorm", eps),
    )
