"""Small checkpoints of models of videos with random weights, of the true architectures."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from tests.models import small

MARKS = ["<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>"]
TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{% if m.content is string %}{{ m.content }}{% else %}"
    "{% for c in m.content %}{% if c.type == 'video' %}<|vision_start|><|video_pad|><|vision_end|>{% else %}"
    "{{ c.text }}{% endif %}{% endfor %}{% endif %}<|im_end|>\n{% endfor %}"
    "{{ '<|im_start|>assistant\n' }}"
)
TEXT = dict(
    hidden_size=32,
    intermediate_size=48,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    max_position_embeddings=512,
)
COSMOS = dict(side=28, frames=8, width=24)


def tokenizer(folder: Path, template: bool = True) -> Any:
    """Save a tokenizer with the marks of Qwen's chats."""
    from transformers import PreTrainedTokenizerFast

    made = small.tokenizer_of("bytes", folder, longest=512, ends=False)._tokenizer
    found = PreTrainedTokenizerFast(
        tokenizer_object=made, eos_token="<|im_end|>", pad_token="<pad>", additional_special_tokens=MARKS
    )
    found.chat_template = TEMPLATE if template else None
    found.save_pretrained(str(folder))
    return found


def _loud(model: Any) -> Any:
    import torch

    with torch.no_grad():
        for weight in model.parameters():  # larger than at the start of a training, so that inputs differ
            weight.add_(torch.randn_like(weight) * 0.1)
    return model.eval()


def save_captioner(kind: str, folder: Path, seed: int, template: bool = True) -> Any:
    """Save a model of the Qwen-VL family and return it."""
    import torch
    import transformers as t

    torch.manual_seed(seed)
    words = tokenizer(folder, template)
    ids = dict(zip(MARKS, words.convert_tokens_to_ids(MARKS), strict=True))
    rope = {"rope_type": "default", "mrope_section": [1, 1, 2], "rope_theta": 10000.0}
    text = dict(TEXT, vocab_size=len(words), rope_parameters=rope, rope_scaling=rope)
    common = dict(
        image_token_id=ids["<|image_pad|>"],
        video_token_id=ids["<|video_pad|>"],
        vision_start_token_id=ids["<|vision_start|>"],
        vision_end_token_id=ids["<|vision_end|>"],
        tie_word_embeddings=False,
    )
    if kind == "qwen2_5_vl":
        vision = dict(
            depth=2,
            hidden_size=32,
            intermediate_size=48,
            num_heads=2,
            out_hidden_size=32,
            patch_size=14,
            window_size=56,
            fullatt_block_indexes=[1],
        )
        model: Any = t.Qwen2_5_VLForConditionalGeneration(
            t.Qwen2_5_VLConfig(text_config=text, vision_config=vision, **common)
        )
    else:
        vision = dict(
            depth=2,
            hidden_size=32,
            intermediate_size=48,
            num_heads=2,
            out_hidden_size=32,
            patch_size=16,
            num_position_embeddings=64,
            deepstack_visual_indexes=[0],
        )
        model = t.Qwen3VLForConditionalGeneration(
            t.Qwen3VLConfig(text_config=dict(text, head_dim=8), vision_config=vision, **common)
        )
    model.generation_config.eos_token_id = words.eos_token_id
    t.logging.disable_progress_bar()
    _loud(model).save_pretrained(str(folder))
    return model


def save_rewriter(folder: Path, seed: int) -> Any:
    """Save a model of texts for chats and return it."""
    import torch
    import transformers as t

    torch.manual_seed(seed)
    words = tokenizer(folder)
    model = t.Qwen2ForCausalLM(t.Qwen2Config(**TEXT, vocab_size=len(words), eos_token_id=words.eos_token_id))
    t.logging.disable_progress_bar()
    _loud(model).save_pretrained(str(folder))
    return model


def save_cosmos(folder: Path, seed: int, qformer: str = "qformer", **config: Any) -> Any:
    """Save a Cosmos-Embed1 by the names of its weights. Return its parts as transformers has them for BLIP-2."""
    import torch
    import transformers as t
    from safetensors.torch import save_file

    torch.manual_seed(seed)
    hidden, wide = 176, 128
    vision = _loud(
        t.Blip2VisionModel(
            t.Blip2VisionConfig(
                hidden_size=hidden,
                intermediate_size=200,
                num_hidden_layers=2,
                num_attention_heads=2,
                image_size=COSMOS["side"],
                patch_size=14,
                layer_norm_eps=1e-6,
            )
        )
    )
    vision.post_layernorm.eps = 1e-5
    former = _loud(
        t.Blip2QFormerModel(
            t.Blip2QFormerConfig(
                hidden_size=wide,
                intermediate_size=96,
                num_hidden_layers=3,
                num_attention_heads=2,
                cross_attention_frequency=2,
                encoder_hidden_size=hidden,
            )
        )
    )
    own = {
        "temporal_encoding": torch.randn(1, COSMOS["frames"], 1, hidden),
        "query_tokens": torch.randn(1, 5, wide),
        "vision_proj.weight": torch.randn(COSMOS["width"], wide),
        "vision_proj.bias": torch.randn(COSMOS["width"]),
        "text_proj.weight": torch.randn(COSMOS["width"], wide),
        f"{qformer}.bert.embeddings.word_embeddings.weight": torch.randn(30, wide),
        f"{qformer}.bert.encoder.layer.0.intermediate.dense.weight": torch.randn(96, wide),
    }
    state = {**own, **_of_vision(vision.state_dict(), hidden), **_of_former(former.state_dict(), f"{qformer}.bert.")}
    folder.mkdir(parents=True, exist_ok=True)
    save_file({name: one.detach().clone().contiguous() for name, one in state.items()}, folder / "model.safetensors")
    told = {
        "model_type": "cosmos-embed1",
        "resolution": COSMOS["side"],
        "num_video_frames": COSMOS["frames"],
        "embed_dim": COSMOS["width"],
        "temporal_encoding_type": "temporal_parameter",
    }
    (folder / "config.json").write_text(json.dumps(told | config), encoding="utf-8")
    return vision, former, own


def _of_vision(state: dict[str, Any], hidden: int) -> dict[str, Any]:
    found = {
        "visual_encoder.cls_token": state["embeddings.class_embedding"],
        "visual_encoder.pos_embed": state["embeddings.position_embedding"],
        "visual_encoder.patch_embed.proj.weight": state["embeddings.patch_embedding.weight"],
        "visual_encoder.patch_embed.proj.bias": state["embeddings.patch_embedding.bias"],
        "ln_vision.weight": state["post_layernorm.weight"],
        "ln_vision.bias": state["post_layernorm.bias"],
    }
    names = {"self_attn": "attn", "projection": "proj", "layer_norm1": "norm1", "layer_norm2": "norm2"}
    for name, tensor in state.items():
        if not name.startswith("encoder.layers."):
            continue
        parts = [names.get(part, part) for part in name.removeprefix("encoder.layers.").split(".")]
        new = f"visual_encoder.blocks.{'.'.join(parts)}"
        if new.endswith("qkv.bias"):
            tensor[hidden : 2 * hidden] = 0  # keys have no bias
            found[new.replace("qkv.bias", "q_bias")] = tensor[:hidden]
            found[new.replace("qkv.bias", "v_bias")] = tensor[2 * hidden :]
        else:
            found[new] = tensor
    return found


def _of_former(state: dict[str, Any], prefix: str) -> dict[str, Any]:
    found = {}
    for name, tensor in state.items():
        new = name.replace(".attention.attention.", ".attention.self.").replace(
            ".crossattention.attention.", ".crossattention.self."
        )
        new = new.replace("layernorm.", "embeddings.LayerNorm.") if new.startswith("layernorm.") else new
        found[prefix + new] = tensor
    return found


def cosmos_reference(parts: Any, clips: Any) -> Any:
    """The embeddings of clips by BLIP-2's parts: uint8, (clips, frames, height, width, 3)."""
    import torch

    vision, former, own = parts
    mean = torch.tensor([0.48145466, 0.4578275, 0.40821073])
    std = torch.tensor([0.26862954, 0.26130258, 0.27577711])
    rows = []
    with torch.no_grad():
        for clip in clips:
            pixels = (torch.from_numpy(clip).float() / 255 - mean) / std
            tokens = vision(pixels.permute(0, 3, 1, 2)).last_hidden_state + own["temporal_encoding"][0]
            queries = former(
                query_embeds=own["query_tokens"], encoder_hidden_states=tokens.flatten(0, 1)[None]
            ).last_hidden_state
            row = queries.mean(1) @ own["vision_proj.weight"].T + own["vision_proj.bias"]
            rows.append(torch.nn.functional.normalize(row, dim=1))
    return torch.cat(rows).numpy()


def clips_of(seed: int, count: int, frames: int, side: int) -> Any:
    """Clips of moving waves: uint8, (clips, frames, side, side, 3)."""
    draw = np.random.default_rng(seed)
    t, y, x = np.mgrid[0:frames, 0:side, 0:side]
    made = []
    for _ in range(count):
        waves = [np.sin(x / draw.uniform(2, 9) + y / draw.uniform(2, 9) + t * draw.uniform(0, 2)) for _ in range(3)]
        made.append(np.clip(127 + 110 * np.stack(waves, axis=-1), 0, 255))
    return np.stack(made).astype(np.uint8)
