"""The architectures that can be loaded: where their parts lie in a checkpoint, and how long a text may be."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

HeadKind = Literal["pooled", "projected", "projected_gelu", "context", "distilled", "prediction", "scored"]
"""How an architecture classifies a text. See `gristmill.models.heads`."""


@dataclass(frozen=True, slots=True)
class Architecture:
    """The properties of an architecture, apart from its layers."""

    prefix: str
    """Before the names of the trunk's weights in a checkpoint with a head."""
    head: HeadKind
    embedding: str = "embeddings.word_embeddings.weight"
    has_pooler: bool = False
    """Whether its model takes ``add_pooling_layer``."""
    padded_positions: bool = False
    """Whether positions count from the id of the padding token, so that fewer tokens fit."""
    causal: bool = False


_LLAMA = Architecture("model.", "scored", "embed_tokens.weight", causal=True)
_ROBERTA = Architecture("roberta.", "projected", has_pooler=True, padded_positions=True)

ARCHITECTURES: dict[str, Architecture] = {
    "bert": Architecture("bert.", "pooled", has_pooler=True),
    "camembert": _ROBERTA,
    "deberta": Architecture("deberta.", "context"),
    "deberta-v2": Architecture("deberta.", "context"),
    "distilbert": Architecture("distilbert.", "distilled"),
    "electra": Architecture("electra.", "projected_gelu"),
    "gemma": _LLAMA,
    "llama": _LLAMA,
    "mistral": _LLAMA,
    "modernbert": Architecture("model.", "prediction", "embeddings.tok_embeddings.weight"),
    "mpnet": Architecture("mpnet.", "projected", has_pooler=True, padded_positions=True),
    "qwen2": _LLAMA,
    "qwen3": _LLAMA,
    "roberta": _ROBERTA,
    "xlm-roberta": _ROBERTA,
}
"""By ``model_type`` of the configuration."""

_DEBERTA_V3 = {
    "model_type": "deberta-v2",
    "attention_probs_dropout_prob": 0.1,
    "hidden_act": "gelu",
    "hidden_dropout_prob": 0.1,
    "hidden_size": 768,
    "intermediate_size": 3072,
    "layer_norm_eps": 1e-7,
    "max_position_embeddings": 512,
    "max_relative_positions": -1,
    "norm_rel_ebd": "layer_norm",
    "num_attention_heads": 12,
    "num_hidden_layers": 12,
    "pad_token_id": 0,
    "pos_att_type": ["p2c", "c2p"],
    "position_biased_input": False,
    "position_buckets": 256,
    "relative_attention": True,
    "share_att_key": True,
    "type_vocab_size": 0,
}

BASE_MODELS: dict[str, dict[str, Any]] = {
    "microsoft/deberta-v3-base": {**_DEBERTA_V3, "vocab_size": 128100},
    "microsoft/mdeberta-v3-base": {**_DEBERTA_V3, "vocab_size": 251000},
}
"""Configurations of models that NVIDIA's checkpoints only name. Their weights are in those checkpoints."""


def most_tokens(config: Mapping[str, Any]) -> int | None:
    """Return how many tokens of a text a model takes, special ones included; None if there is no limit."""
    if config.get("relative_attention") and not config.get("position_biased_input", True):
        return None
    positions: int | None = config.get("max_position_embeddings")
    if positions is None:
        return None
    found = ARCHITECTURES.get(str(config.get("model_type")))
    if found is not None and found.padded_positions:
        positions -= int(config.get("pad_token_id") or 0) + 1
    return positions
