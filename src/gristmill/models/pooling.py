"""One state for each text, from the states of its tokens: the modes of sentence-transformers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Literal, get_args

from gristmill.models.model import Reads

if TYPE_CHECKING:
    import torch

Mode = Literal["cls", "max", "mean", "mean_sqrt_len_tokens", "weightedmean", "lasttoken"]
MODES: tuple[Mode, ...] = get_args(Mode)


def reads_of(modes: Sequence[Mode]) -> Reads:
    """Return the states that these modes need."""
    only = modes[0] if len(modes) == 1 else None
    if only == "cls":
        return "first"
    return "last" if only == "lasttoken" else "all"


def pool(hidden: torch.Tensor, offsets: torch.Tensor, modes: Sequence[Mode]) -> torch.Tensor:
    """Return a row for each text, in float32: the results of the modes, one after another.

    ``hidden`` are the states that `reads_of` names. ``offsets`` (int64): where each text begins in them.
    """
    import torch

    if reads_of(modes) != "all":
        return hidden.float()
    return torch.cat([_POOL[mode](hidden.float(), offsets) for mode in modes], dim=1)


def mean_of(hidden: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
    """The mean of the states of each text, computed in float32."""
    return _reduced(hidden.float(), offsets, "mean")


def _reduced(hidden: torch.Tensor, offsets: torch.Tensor, how: str) -> torch.Tensor:
    import torch

    # `unsafe` skips checks that would wait for the GPU.
    return torch.segment_reduce(hidden, how, offsets=offsets, axis=0, unsafe=True)


def _max(hidden: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
    return _reduced(hidden, offsets, "max")


def _mean_by_root(hidden: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
    """The sum of the states, divided by the square root of their number."""
    return mean_of(hidden, offsets) * offsets.diff().sqrt()[:, None]


def _weighted_mean(hidden: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
    """The mean in which the first token counts once, the second twice, and so on."""
    import torch

    lengths = offsets.diff()
    positions = torch.arange(len(hidden), device=hidden.device) - offsets[:-1].repeat_interleave(
        lengths, output_size=len(hidden)
    )
    sums = _reduced(hidden * (positions + 1)[:, None], offsets, "sum")
    return sums / (lengths * (lengths + 1) / 2)[:, None]


_POOL: dict[Mode, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "cls": lambda hidden, offsets: hidden[offsets[:-1]],
    "max": _max,
    "mean": mean_of,
    "mean_sqrt_len_tokens": _mean_by_root,
    "weightedmean": _weighted_mean,
    "lasttoken": lambda hidden, offsets: hidden[offsets[1:] - 1],
}
