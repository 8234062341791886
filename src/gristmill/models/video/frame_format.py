"""The frames that models of the Qwen-VL family read: their size, and the tokens that they become."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gristmill.errors import ModelError
from gristmill.models.checkpoint import Checkpoint
from gristmill.models.vision.architectures import CLIP_MEAN, CLIP_STD
from gristmill.models.vision.preprocessing import Triple
from gristmill.near_names import near

KINDS = ("qwen2_vl", "qwen2_5_vl", "qwen3_vl")
"""The ``model_type`` of models that are known."""
LEAST_PIXELS = 128 * 28 * 28
"""Of a frame. Smaller ones are enlarged."""
MOST_PIXELS = 768 * 28 * 28
"""Of a frame, by default. Larger ones are reduced."""
_FILES = ("video_preprocessor_config.json", "preprocessor_config.json", "processor_config.json")
_HALF: Triple = (0.5, 0.5, 0.5)


@dataclass(frozen=True)
class FrameFormat:
    """How frames become the input of a model."""

    kind: str
    patch: int
    """Rows and columns of pixels in a patch."""
    merge: int
    """Rows and columns of patches in a token."""
    temporal: int
    """Frames in a token."""
    mean: Triple
    std: Triple

    @property
    def factor(self) -> int:
        """Both sides of a frame are multiples of it."""
        return self.patch * self.merge

    def size(self, height: int, width: int, most: int = MOST_PIXELS, least: int = LEAST_PIXELS) -> tuple[int, int]:
        """Return the height and width to which frames are resized: about the same shape, and not too many pixels."""
        factor = self.factor
        tall, wide = max(factor, round(height / factor) * factor), max(factor, round(width / factor) * factor)
        if tall * wide > most:
            scale = math.sqrt(height * width / most)
            tall = max(factor, int(height / scale / factor) * factor)
            wide = max(factor, int(width / scale / factor) * factor)
        elif tall * wide < least:
            scale = math.sqrt(least / (height * width))
            tall = math.ceil(height * scale / factor) * factor
            wide = math.ceil(width * scale / factor) * factor
        return tall, wide

    def grid(self, frames: int, height: int, width: int) -> tuple[int, int, int]:
        """Return the patches of frames of this size: in time, rows, columns."""
        return -(-frames // self.temporal), height // self.patch, width // self.patch

    def tokens(self, grid: Sequence[int]) -> int:
        """Return how many tokens a grid of patches becomes."""
        return grid[0] * grid[1] * grid[2] // self.merge**2

    def placeholder(self, grid: tuple[int, int, int], fps: float) -> str:
        """Return the text in a prompt that stands for a video."""
        if self.kind != "qwen3_vl":
            return f"<|vision_start|>{'<|video_pad|>' * self.tokens(grid)}<|vision_end|>"
        each = "<|video_pad|>" * self.tokens((1, *grid[1:]))
        middle = (self.temporal - 1) / 2
        times = ((number * self.temporal + middle) / fps for number in range(grid[0]))
        return "".join(f"<{time:.1f} seconds><|vision_start|>{each}<|vision_end|>" for time in times)


def frame_format(checkpoint: Checkpoint) -> FrameFormat:
    """Return the format of a checkpoint, or raise a `ModelError` if it is not of the family. Weights are not read."""
    kind = str(checkpoint.config.get("model_type"))
    if kind not in KINDS:
        guess = near(kind, KINDS)
        hint = f" Is it a {guess!r}?" if guess else ""
        raise ModelError(
            f"{checkpoint.title} is of the architecture {kind!r}, which does not make captions here.{hint}\n"
            f"    supported: {', '.join(KINDS)}; for example Qwen/Qwen2.5-VL-7B-Instruct."
        )
    vision = checkpoint.config.get("vision_config") or {}
    found = _preprocessor(checkpoint)
    is_third = kind == "qwen3_vl"
    sizes: dict[str, Any] = {
        "patch_size": vision.get("patch_size", 16 if is_third else 14),
        "spatial_merge_size": vision.get("spatial_merge_size", 2),
        "temporal_patch_size": vision.get("temporal_patch_size", 2),
    }
    for name, value in sizes.items():
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise ModelError(f"{checkpoint.title}: {name} in config.json is {value!r}, not a whole number above 0.")
    mean = _triple(checkpoint, found, "image_mean", _HALF if is_third else CLIP_MEAN)
    std = _triple(checkpoint, found, "image_std", _HALF if is_third else CLIP_STD)
    patch, merge, temporal = sizes["patch_size"], sizes["spatial_merge_size"], sizes["temporal_patch_size"]
    return FrameFormat(kind, patch, merge, temporal, mean, std)


def _preprocessor(checkpoint: Checkpoint) -> Mapping[str, Any]:
    for name in _FILES:
        found = checkpoint.json(name)
        if found is not None:
            nested = found.get("video_processor") or found.get("image_processor")
            return nested if isinstance(nested, dict) else found
    return {}


def _triple(checkpoint: Checkpoint, found: Mapping[str, Any], name: str, default: Triple) -> Triple:
    value = found.get(name, default)
    if not isinstance(value, list | tuple) or len(value) != 3 or not all(isinstance(one, int | float) for one in value):
        raise ModelError(f"{checkpoint.title}: {name} of its preprocessor is {value!r}, not three numbers.")
    if name == "image_std" and not all(value):
        raise ModelError(f"{checkpoint.title}: image_std of its preprocessor has a 0.")
    return float(value[0]), float(value[1]), float(value[2])
