"""The configurations of image models: shapes, names of weights, and which model a checkpoint is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from gristmill.errors import ModelError
from gristmill.models.checkpoint import CONFIG, Checkpoint
from gristmill.models.vision.preprocessing import Preprocessing
from gristmill.near_names import near

Kind = Literal["clip", "siglip", "dinov2", "dinov2_with_registers"]

KINDS: dict[str, Kind] = {
    "clip": "clip",
    "clip_vision_model": "clip",
    "siglip": "siglip",
    "siglip_vision_model": "siglip",
    "dinov2": "dinov2",
    "dinov2_with_registers": "dinov2_with_registers",
}
"""Architectures by ``model_type`` of the configuration. The first of a pair has a text model, too."""
TWO_TOWERS = ("clip", "siglip")
_VIT = {"hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12, "image_size": 224}
_TOWER = {**_VIT, "intermediate_size": 3072}
DEFAULTS: dict[Kind, dict[str, Any]] = {
    "clip": {**_TOWER, "patch_size": 32, "hidden_act": "quick_gelu", "layer_norm_eps": 1e-5},
    "siglip": {**_TOWER, "patch_size": 16, "hidden_act": "gelu_pytorch_tanh", "layer_norm_eps": 1e-6},
    "dinov2": {**_VIT, "patch_size": 14, "hidden_act": "gelu", "layer_norm_eps": 1e-6, "mlp_ratio": 4},
    "dinov2_with_registers": {**_VIT, "patch_size": 14, "hidden_act": "gelu", "layer_norm_eps": 1e-6, "mlp_ratio": 4},
}
"""What a configuration means that does not name these."""
ACTIVATIONS = ("gelu", "quick_gelu", "gelu_pytorch_tanh", "gelu_new", "gelu_fast")
NAFLEX = "siglip2"
"""Checkpoints that read images of any shape. Those of SigLIP 2 with a fixed shape are of the type "siglip"."""

CLIP_MEAN, CLIP_STD = (0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)
IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


@dataclass(frozen=True)
class VitShape:
    """The sizes of a vision transformer."""

    kind: Kind
    hidden: int
    layers: int
    heads: int
    inner: int
    """Width of the layers between those of ``hidden``."""
    side: int
    """Of the images that it was trained on, in pixels."""
    patch: int
    activation: str
    epsilon: float
    projection: int | None = None
    """Width of the joint space with texts, of CLIP."""
    swiglu: bool = False
    registers: int = 0

    @property
    def width(self) -> int:
        """Numbers in an embedding."""
        return self.projection or self.hidden

    @property
    def space(self) -> str:
        """The model in words that are equal for checkpoints of the same shape."""
        size = f"{self.layers} layers of {self.hidden}, patches of {self.patch} in {self.side} pixels"
        return f"{self.kind}: {size}, {self.activation}, {self.width} numbers"

    @property
    def preprocessing(self) -> Preprocessing:
        """What the published checkpoints of the architecture do."""
        side = self.side
        if self.kind == "clip":
            return Preprocessing(side, crop=(side, side), mean=CLIP_MEAN, std=CLIP_STD)
        if self.kind == "siglip":
            return Preprocessing(None, (side, side), mean=(0.5, 0.5, 0.5), std=(0.5, 0.5, 0.5))
        return Preprocessing(256, crop=(224, 224), mean=IMAGENET_MEAN, std=IMAGENET_STD)


def _clip(layers: int, hidden: int, heads: int, patch: int, projection: int) -> VitShape:
    return VitShape("clip", hidden, layers, heads, 4 * hidden, 224, patch, "quick_gelu", 1e-5, projection)


KNOWN_SPACES: dict[str, str] = {
    "ViT-B/32": _clip(12, 768, 12, 32, 512).space,
    "ViT-B/16": _clip(12, 768, 12, 16, 512).space,
    "ViT-L/14": _clip(24, 1024, 16, 14, 768).space,
}
"""OpenAI's CLIP models by the names that heads for their embeddings go by."""


def kind_of(checkpoint: Checkpoint) -> Kind:
    """Return the architecture of a checkpoint, or raise a `ModelError` if it is not that of an image model."""
    given = str(checkpoint.config.get("model_type"))
    found = KINDS.get(given)
    if found is not None:
        return found
    if given == NAFLEX:
        raise ModelError(
            f"{checkpoint.title} reads images of any shape (NaFlex), which is not supported.\n"
            "    name a checkpoint of SigLIP 2 with a fixed shape, such as google/siglip2-base-patch16-224."
        )
    guess = near(given, KINDS)
    hint = f" Is it a {guess!r}?" if guess else ""
    raise ModelError(
        f"{checkpoint.title} is of the architecture {given!r}, which is not that of an image model.{hint}\n"
        f"    supported: {', '.join(KINDS)}."
    )


def vit_shape(checkpoint: Checkpoint) -> VitShape:
    """Return the shape of the image model of a checkpoint, by its configuration."""
    kind = kind_of(checkpoint)
    config = dict(DEFAULTS[kind]) | tower_config(checkpoint, "vision_config")
    hidden = _whole(checkpoint, config, "hidden_size")
    projection = None
    if kind == "clip":
        # of a checkpoint with both towers, the joint space is named beside them
        outer = checkpoint.config if "vision_config" in checkpoint.config else config
        projection = _whole(checkpoint, {"projection_dim": 512, **outer}, "projection_dim")
    if kind.startswith("dinov2"):
        config["intermediate_size"] = hidden * _whole(checkpoint, config, "mlp_ratio")
    if kind == "siglip" and not config.get("vision_use_head", True):
        raise ModelError(f"{checkpoint.title} has no head (vision_use_head), so it makes no embedding of an image.")
    if config["hidden_act"] not in ACTIVATIONS:
        known = ", ".join(ACTIVATIONS)
        raise ModelError(f"{checkpoint.title}: the activation {config['hidden_act']!r} is not one of {known}.")
    shape = VitShape(
        kind,
        hidden,
        _whole(checkpoint, config, "num_hidden_layers"),
        _whole(checkpoint, config, "num_attention_heads"),
        _whole(checkpoint, config, "intermediate_size"),
        _whole(checkpoint, config, "image_size"),
        _whole(checkpoint, config, "patch_size"),
        str(config["hidden_act"]),
        float(config["layer_norm_eps"]),
        projection,
        bool(config.get("use_swiglu_ffn", False)),
        _whole(checkpoint, {"num_register_tokens": 4, **config}, "num_register_tokens")
        if kind == "dinov2_with_registers"
        else 0,
    )
    if shape.hidden % shape.heads:
        raise ModelError(f"{checkpoint.title}: its width {shape.hidden} is no multiple of its {shape.heads} heads.")
    return shape


def tower_config(checkpoint: Checkpoint, name: str) -> dict[str, Any]:
    """Return the configuration of one of the two models of a checkpoint; all of it if it has one only."""
    config: Mapping[str, Any] = checkpoint.config
    found = config.get(name)
    if found is None and name not in config:
        return dict(config)
    both = {**(found or {}), **(config.get(f"{name}_dict") or {})}
    return {key: value for key, value in both.items() if value is not None}


def _whole(checkpoint: Checkpoint, config: Mapping[str, Any], name: str) -> int:
    value = config.get(name)
    if isinstance(value, list | tuple) and len(value) == 2 and value[0] == value[1]:
        value = value[0]
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ModelError(
            f"{checkpoint.title}: {name} in {CONFIG} must be a whole number, not {value!r}.\n"
            "    get the checkpoint again."
        )
    return value
