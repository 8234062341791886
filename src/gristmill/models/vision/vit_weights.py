"""The weights of vision transformers, from the names in checkpoints to those of our modules. Imports torch."""

from __future__ import annotations

from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gristmill.errors import ModelError
from gristmill.models.loading import Tensors
from gristmill.models.vision.architectures import VitShape

State = Iterator[tuple[str, Tensor]]


def vit_state(shape: VitShape, grid: tuple[int, int], tensors: Tensors) -> dict[str, Tensor]:
    """Return the weights of a `Vit`, of those of a checkpoint by the names in its image model."""
    if shape.kind.startswith("dinov2"):
        return dict(_dino(shape, grid, tensors))
    return dict(_tower(shape, grid, tensors))


def load_state(module: nn.Module, state: dict[str, Tensor], title: str) -> None:
    """Put weights into a module, or raise a `ModelError` if they do not fit it."""
    try:
        module.load_state_dict(state)
    except RuntimeError as error:
        lines = [line.strip() for line in str(error).splitlines()]
        reason = lines[1] if len(lines) > 1 else lines[0]
        raise ModelError(
            f"{title} cannot be used: its weights do not fit its config.json ({reason})\n"
            "    get the complete checkpoint."
        ) from None


def block_state(ours: str, theirs: str, tensors: Tensors) -> State:
    """The weights of a `Block`, by the names of CLIP and SigLIP."""
    for part in ("weight", "bias"):
        yield from attention_state(f"{ours}.attention", f"{theirs}.self_attn", part, tensors)
        for name, old in (("norm1", "layer_norm1"), ("norm2", "layer_norm2")):
            yield f"{ours}.{name}.{part}", tensors[f"{theirs}.{old}.{part}"]
        yield from _mlp(f"{ours}.mlp", f"{theirs}.mlp", part, tensors)


def attention_state(ours: str, theirs: str, part: str, tensors: Tensors) -> State:
    names = (f"{theirs}.{one}_proj.{part}" for one in ("q", "k", "v"))
    yield f"{ours}.qkv.{part}", torch.cat([tensors[name] for name in names])
    yield f"{ours}.out.{part}", tensors[f"{theirs}.out_proj.{part}"]


def _mlp(ours: str, theirs: str, part: str, tensors: Tensors) -> State:
    for name in ("fc1", "fc2"):
        yield f"{ours}.{name}.{part}", tensors[f"{theirs}.{name}.{part}"]


def _tower(shape: VitShape, grid: tuple[int, int], tensors: Tensors) -> State:
    is_clip = shape.kind == "clip"
    patch = tensors["embeddings.patch_embedding.weight"]
    bias = torch.zeros(len(patch)) if is_clip else tensors["embeddings.patch_embedding.bias"]
    yield from _patches(patch, bias)
    positions = tensors["embeddings.position_embedding.weight"]
    if is_clip:
        yield "first", (tensors["embeddings.class_embedding"] + positions[0])[None]
        positions = positions[1:]
    else:
        yield "first", torch.zeros(0, shape.hidden)
    yield "position", _resized(positions, shape, grid, antialias=False)
    for layer in range(shape.layers):
        yield from block_state(f"blocks.{layer}", f"encoder.layers.{layer}", tensors)
    for part in ("weight", "bias"):
        if is_clip:
            yield f"norm_before.{part}", tensors[f"pre_layrnorm.{part}"]  # with the typing error of the checkpoints
        yield f"norm_after.{part}", tensors[f"post_layernorm.{part}"]
    if is_clip:
        yield "projection.weight", tensors["visual_projection.weight"]
        return
    yield "head.probe", tensors["head.probe"]
    for part in ("weight", "bias"):
        yield f"head.attention.qkv.{part}", tensors[f"head.attention.in_proj_{part}"]
        yield f"head.attention.out.{part}", tensors[f"head.attention.out_proj.{part}"]
        yield f"head.norm.{part}", tensors[f"head.layernorm.{part}"]
        yield from _mlp("head.mlp", "head.mlp", part, tensors)


def _dino(shape: VitShape, grid: tuple[int, int], tensors: Tensors) -> State:
    name = "embeddings.patch_embeddings.projection"
    yield from _patches(tensors[f"{name}.weight"], tensors[f"{name}.bias"])
    positions = tensors["embeddings.position_embeddings"][0]
    first = tensors["embeddings.cls_token"][0] + positions[:1]
    if shape.registers:
        first = torch.cat([first, tensors["embeddings.register_tokens"][0]])
    yield "first", first
    yield "position", _resized(positions[1:], shape, grid, antialias=bool(shape.registers))
    for layer in range(shape.layers):
        yield from _dino_block(f"blocks.{layer}", f"encoder.layer.{layer}", shape.swiglu, tensors)
    for part in ("weight", "bias"):
        yield f"norm_after.{part}", tensors[f"layernorm.{part}"]


def _dino_block(ours: str, theirs: str, swiglu: bool, tensors: Tensors) -> State:
    inner = "attention.attention"
    last = "weights_out" if swiglu else "fc2"
    scales = tensors[f"{theirs}.layer_scale1.lambda1"], tensors[f"{theirs}.layer_scale2.lambda1"]
    for part in ("weight", "bias"):
        rows = [tensors[f"{theirs}.{inner}.{one}.{part}"] for one in ("query", "key", "value")]
        yield f"{ours}.attention.qkv.{part}", torch.cat(rows)
        yield f"{ours}.mlp.fc1.{part}", tensors[f"{theirs}.mlp.{'weights_in' if swiglu else 'fc1'}.{part}"]
        # scaled once here, instead of each result
        yield f"{ours}.attention.out.{part}", _scaled(tensors[f"{theirs}.attention.output.dense.{part}"], scales[0])
        yield f"{ours}.mlp.fc2.{part}", _scaled(tensors[f"{theirs}.mlp.{last}.{part}"], scales[1])
        for norm in ("norm1", "norm2"):
            yield f"{ours}.{norm}.{part}", tensors[f"{theirs}.{norm}.{part}"]


def _scaled(tensor: Tensor, rows: Tensor) -> Tensor:
    return tensor * (rows[:, None] if tensor.ndim > 1 else rows)


def _patches(weight: Tensor, bias: Tensor) -> State:
    """A convolution whose step is its size, as a dense layer of the numbers of a patch."""
    yield "patches.weight", weight.permute(0, 2, 3, 1).reshape(len(weight), -1)
    yield "patches.bias", bias


def _resized(positions: Tensor, shape: VitShape, grid: tuple[int, int], antialias: bool) -> Tensor:
    """Position embeddings for a grid of patches of another size than that of training."""
    side = shape.side // shape.patch
    if len(positions) != side * side:
        raise ModelError(
            f"the model has {len(positions):,} positions, but its config.json means {side * side:,}.\n"
            "    get the complete checkpoint, with the config.json that belongs to it."
        )
    if grid == (side, side):
        return positions
    square = positions.float().reshape(1, side, side, -1).permute(0, 3, 1, 2)
    made = F.interpolate(square, size=grid, mode="bicubic", align_corners=False, antialias=antialias)
    return made.permute(0, 2, 3, 1).reshape(grid[0] * grid[1], -1)
