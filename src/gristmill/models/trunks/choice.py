"""Which trunk runs a model: one without padding where there is one for its architecture, device and type."""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING, Any

from gristmill.models.model import Trunk
from gristmill.models.trunks.padded import PaddedTrunk

if TYPE_CHECKING:
    from collections.abc import Mapping

    import torch

    from gristmill.models.loading import TrunkSource

HEAD_DIMS = (16, 32, 64, 128)
"""The sizes of heads that the attention kernels are made for."""


def make_trunk(source: TrunkSource, device: torch.device, dtype: torch.dtype) -> Trunk:
    """Make the fastest trunk that there is."""
    if device.type == "cpu":
        return _cpu_trunk(source, device, dtype)
    config = source.config
    if device.type != "cuda" or dtype.itemsize != 2:  # the kernels compute products in half precision
        return PaddedTrunk(source, device, dtype)
    if _is_bert(config) and _head_dim(config) in HEAD_DIMS:
        from gristmill.models.trunks.bert import BertTrunk

        return BertTrunk(config, source.tensors(dtype), device, dtype)
    if _is_deberta(config):
        from gristmill.models.trunks.deberta import DebertaTrunk

        return DebertaTrunk(config, source.tensors(dtype), device, dtype)
    if _is_llama(config) and _has_varlen():
        from gristmill.models.trunks.llama import LlamaTrunk

        return LlamaTrunk(config, source.tensors(dtype), device, dtype, source.first_tokens)
    return PaddedTrunk(source, device, dtype)


def _has_varlen() -> bool:
    """Whether this PyTorch has attention over texts of various lengths (since 2.10)."""
    return importlib.util.find_spec("torch.nn.attention.varlen") is not None


def _cpu_trunk(source: TrunkSource, device: torch.device, dtype: torch.dtype) -> Trunk:
    import torch

    if _is_bert(source.config):
        from gristmill.models.trunks.cpu import CpuTrunk

        return CpuTrunk(source.config, source.tensors(torch.float32), dtype)
    return PaddedTrunk(source, device, torch.float32)


def _is_bert(config: Mapping[str, Any]) -> bool:
    return (
        config["model_type"] in ("bert", "roberta", "xlm-roberta", "camembert")
        and config.get("position_embedding_type", "absolute") == "absolute"
        and config.get("hidden_act", "gelu") == "gelu"
        and not config.get("is_decoder")
    )


def _is_deberta(config: Mapping[str, Any]) -> bool:
    """DeBERTa as in version 3: other variants have convolutions, or other terms of positions."""
    terms = config.get("pos_att_type") or ()
    terms = terms.split("|") if isinstance(terms, str) else terms
    return (
        config["model_type"] == "deberta-v2"
        and bool(config.get("relative_attention"))
        and int(config.get("position_buckets", -1)) >= 128
        and set(terms) == {"c2p", "p2c"}
        and bool(config.get("share_att_key"))
        and not config.get("position_biased_input", True)
        and not config.get("type_vocab_size")
        and not config.get("conv_kernel_size")
        and config.get("embedding_size", config["hidden_size"]) == config["hidden_size"]
        and config.get("hidden_act", "gelu") == "gelu"
        and _head_dim(config) in HEAD_DIMS
    )


def _is_llama(config: Mapping[str, Any]) -> bool:
    rope = config.get("rope_scaling") or config.get("rope_parameters") or {}
    return (
        config["model_type"] in ("llama", "mistral", "qwen2")
        and str(rope.get("rope_type", rope.get("type", "default"))) == "default"
        and not (config.get("sliding_window") and config.get("use_sliding_window", True))
        and config.get("hidden_act", "silu") == "silu"
        and not config.get("mlp_bias")
        and _head_dim(config) in HEAD_DIMS
    )


def _head_dim(config: Mapping[str, Any]) -> int:
    return int(config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"])
