"""Small checkpoints of image models with random weights, as transformers saves them, and pictures for them."""

from __future__ import annotations

import io
import json
import random
from pathlib import Path
from typing import Any

import numpy as np
from tests.models import small

TOWER = dict(hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4)
VISION = dict(TOWER, image_size=32, patch_size=8)
DINO = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, image_size=42, patch_size=14)
KINDS = ("clip", "clip vision", "siglip", "siglip vision", "dinov2", "dinov2 swiglu", "dinov2_with_registers")


def save(kind: str, folder: Path, seed: int, **vision: Any) -> Any:
    """Save a checkpoint of an architecture with random weights and return the model of transformers."""
    import torch
    import transformers

    torch.manual_seed(seed)
    model = _made(kind, folder, vision).eval()
    with torch.no_grad():
        for weight in model.parameters():  # larger than at the start of a training, so that images differ
            weight.add_(torch.randn_like(weight) * 0.1)
    transformers.logging.disable_progress_bar()
    model.save_pretrained(str(folder))
    return model


def _made(kind: str, folder: Path, vision: dict[str, Any]) -> Any:
    import transformers as t

    if kind in ("clip", "siglip"):
        tokenizer = small.tokenizer_of("bytes", folder, longest=16)
        text = dict(TOWER, vocab_size=len(tokenizer), max_position_embeddings=16, pad_token_id=tokenizer.pad_token_id)
        text |= dict(bos_token_id=tokenizer.bos_token_id, eos_token_id=tokenizer.eos_token_id)
        if kind == "clip":
            wide = dict(text, hidden_size=24, num_attention_heads=3)
            return t.CLIPModel(t.CLIPConfig(vision_config=VISION | vision, text_config=wide, projection_dim=20))
        return t.SiglipModel(t.SiglipConfig(vision_config=VISION | vision, text_config=text))
    if kind == "clip vision":
        return t.CLIPVisionModelWithProjection(t.CLIPVisionConfig(**VISION, projection_dim=20, **vision))
    if kind == "siglip vision":
        return t.SiglipVisionModel(t.SiglipVisionConfig(**VISION | vision))
    if kind == "dinov2_with_registers":
        return t.Dinov2WithRegistersModel(t.Dinov2WithRegistersConfig(**DINO | vision, layerscale_value=0.7))
    swiglu = kind == "dinov2 swiglu"
    return t.Dinov2Model(t.Dinov2Config(**DINO | vision, use_swiglu_ffn=swiglu, layerscale_value=0.7))


def preprocessor(folder: Path, **config: Any) -> None:
    """Save the configuration of an image processor."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "preprocessor_config.json").write_text(json.dumps(config), encoding="utf-8")


def picture(draw: random.Random, height: int, width: int) -> Any:
    """Pixels with smooth colours, edges and some noise."""
    y, x = np.mgrid[0:height, 0:width]
    waves = [np.sin(x / draw.uniform(3, 40) + y / draw.uniform(3, 40) + draw.random() * 6) for _ in range(3)]
    pixels = 127 + 100 * np.stack(waves, axis=2)
    top, left = draw.randrange(height), draw.randrange(width)
    pixels[top:, left:] = 255 - pixels[top:, left:]
    noise = np.random.default_rng(draw.randrange(2**31)).normal(0, 8, pixels.shape)
    return np.clip(pixels + noise, 0, 255).astype(np.uint8)


def pictures(draw: random.Random, count: int, least: int = 20, most: int = 90) -> list[Any]:
    """Pictures of different sizes."""
    return [picture(draw, draw.randint(least, most), draw.randint(least, most)) for _ in range(count)]


def encoded(pixels: Any, kind: str = "PNG", **options: Any) -> bytes:
    """A picture as a file."""
    from PIL import Image

    with io.BytesIO() as file:
        Image.fromarray(pixels).save(file, kind, **options)
        return file.getvalue()


def processor(config: dict[str, Any]) -> Any:
    """The image processor of transformers for a configuration, on Pillow."""
    from transformers.models.bit.image_processing_pil_bit import BitImageProcessorPil
    from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil
    from transformers.models.siglip.image_processing_pil_siglip import SiglipImageProcessorPil

    known = {
        "CLIPImageProcessor": CLIPImageProcessorPil,
        "SiglipImageProcessor": SiglipImageProcessorPil,
        "BitImageProcessor": BitImageProcessorPil,
    }
    options = {key: value for key, value in config.items() if key != "image_processor_type"}
    return known[config["image_processor_type"]](**options)


def reference(model: Any, config: dict[str, Any], images: list[Any]) -> Any:
    """The embeddings of transformers in float32, image by image."""
    import torch
    from PIL import Image

    made = processor(config)
    rows = []
    with torch.inference_mode():
        for pixels in images:
            inputs = made(images=Image.fromarray(pixels), return_tensors="pt")["pixel_values"]
            if hasattr(model, "get_image_features"):
                found = model.get_image_features(pixel_values=inputs)
                rows.append(found.pooler_output if hasattr(found, "pooler_output") else found)
            else:
                found = model(pixel_values=inputs)
                rows.append(found.image_embeds if "image_embeds" in found else found.pooler_output)
    return torch.cat(rows).numpy()


CLIP_CONFIG: dict[str, Any] = dict(
    image_processor_type="CLIPImageProcessor",
    do_resize=True,
    size={"shortest_edge": 32},
    resample=3,
    do_center_crop=True,
    crop_size={"height": 32, "width": 32},
    do_rescale=True,
    rescale_factor=1 / 255,
    do_normalize=True,
    image_mean=[0.48145466, 0.4578275, 0.40821073],
    image_std=[0.26862954, 0.26130258, 0.27577711],
    do_convert_rgb=True,
)
SIGLIP_CONFIG: dict[str, Any] = dict(
    image_processor_type="SiglipImageProcessor",
    do_resize=True,
    size={"height": 32, "width": 32},
    resample=3,
    do_rescale=True,
    rescale_factor=1 / 255,
    do_normalize=True,
    image_mean=[0.5, 0.5, 0.5],
    image_std=[0.5, 0.5, 0.5],
)
DINO_CONFIG: dict[str, Any] = dict(
    CLIP_CONFIG,
    image_processor_type="BitImageProcessor",
    size={"shortest_edge": 64},
    crop_size={"height": 56, "width": 56},
    image_mean=[0.485, 0.456, 0.406],
    image_std=[0.229, 0.224, 0.225],
)


def config_of(kind: str) -> dict[str, Any]:
    """The configuration of the image processor that goes with an architecture."""
    if kind.startswith("clip"):
        return CLIP_CONFIG
    return SIGLIP_CONFIG if kind.startswith("siglip") else DINO_CONFIG
