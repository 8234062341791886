"""The documents and models of the GPU benchmarks: lengths of real documents, weights at random."""

from __future__ import annotations

import numpy as np
import torch
import transformers

from gristmill.models.tokens import TokenLists

DEBERTA_V3_BASE = {
    "vocab_size": 128_100, "hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12,
    "intermediate_size": 3072, "max_position_embeddings": 512, "relative_attention": True, "position_buckets": 256,
    "norm_rel_ebd": "layer_norm", "share_att_key": True, "pos_att_type": ["p2c", "c2p"],
    "position_biased_input": False, "type_vocab_size": 0, "num_labels": 3, "layer_norm_eps": 1e-7,
}  # fmt: skip
MINILM = {
    "vocab_size": 30_522, "hidden_size": 384, "num_hidden_layers": 6, "num_attention_heads": 12,
    "intermediate_size": 1536, "max_position_embeddings": 512,
}  # fmt: skip
LLAMA_7B = {
    "vocab_size": 32_000, "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32,
    "intermediate_size": 11_008, "max_position_embeddings": 4096, "num_labels": 2, "pad_token_id": 0,
}  # fmt: skip


def documents(count: int, vocabulary: int, seed: int = 0) -> TokenLists:
    """Documents of 291 tokens on average, at most 512."""
    rng = np.random.default_rng(seed)
    lengths = np.clip(rng.lognormal(5.6, 0.8, count).astype(int), 16, 512)
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    return TokenLists(rng.integers(5, vocabulary, offsets[-1]).astype(np.int32), offsets)


def deberta(device: torch.device) -> transformers.PreTrainedModel:
    torch.manual_seed(0)
    config = transformers.DebertaV2Config(**DEBERTA_V3_BASE, attn_implementation="eager")
    return transformers.DebertaV2ForSequenceClassification(config).to(device).eval()


def minilm(device: torch.device, attention: str = "sdpa") -> transformers.PreTrainedModel:
    torch.manual_seed(0)
    config = transformers.BertConfig(**MINILM, attn_implementation=attention)
    return transformers.BertModel(config, add_pooling_layer=False).to(device).eval()


def llama(device: torch.device) -> transformers.PreTrainedModel:
    """Made on the device in half precision, since it does not matter which weights it has."""
    torch.manual_seed(0)
    with torch.device(device):
        before = torch.get_default_dtype()
        torch.set_default_dtype(torch.bfloat16)
        try:
            model = transformers.LlamaForSequenceClassification(transformers.LlamaConfig(**LLAMA_7B))
        finally:
            torch.set_default_dtype(before)
    return model.eval()
