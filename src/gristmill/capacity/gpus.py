"""Kinds of GPUs, with figures of their makers, to estimate how fast a stage is on another kind.

Relative speeds are estimates. Stages that compute are limited by the tensor cores, others by the memory: the speed of
a kind relative to another is taken to lie between the two ratios, and to be their geometric mean.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt

from gristmill.capacity.errors import CapacityError
from gristmill.near_names import did_you_mean


@dataclass(frozen=True, slots=True)
class GpuKind:
    """A kind of GPU, by the data sheet of its maker."""

    name: str
    tflops: float
    """Dense 16-bit tensor operations."""
    gb_per_s: float
    """Bandwidth of its memory."""
    memory_gb: float
    models: tuple[str, ...]
    """Parts of the names that nvidia-smi shows, in lower case: all of one text must be there."""


KINDS = (
    GpuKind("t4", 65, 320, 16, ("tesla t4",)),
    GpuKind("v100", 125, 900, 32, ("v100",)),
    GpuKind("l4", 121, 300, 24, ("nvidia l4 ",)),
    GpuKind("a10g", 70, 600, 24, ("a10g",)),
    GpuKind("a100-40gb", 312, 1555, 40, ("a100-sxm4-40gb", "a100-pcie-40gb")),
    GpuKind("a100", 312, 2039, 80, ("a100",)),
    GpuKind("l40s", 362, 864, 48, ("l40s",)),
    GpuKind("h100", 989, 3350, 80, ("h100",)),
    GpuKind("h200", 989, 4800, 141, ("h200",)),
    GpuKind("b200", 2250, 8000, 180, ("b200",)),
)


@dataclass(frozen=True, slots=True)
class RelativeSpeed:
    """How fast a kind is, relative to the measured one: 2 halves the time of a task."""

    low: float
    usual: float
    high: float


SAME = RelativeSpeed(1.0, 1.0, 1.0)


def gpu_kind(name: str) -> GpuKind:
    """Return the kind of a name on the command line."""
    for kind in KINDS:
        if kind.name == name.lower():
            return kind
    names = [kind.name for kind in KINDS]
    raise CapacityError(f"{name!r} is not a kind of GPU that --gpu knows.{did_you_mean(name, names, _known(names))}")


def _known(names: list[str]) -> str:
    return f" It knows {', '.join(names)}"


def kind_of_model(model: str) -> GpuKind | None:
    """Return the kind of a GPU by the name that nvidia-smi shows."""
    text = f"nvidia {model.lower().removeprefix('nvidia ')}"
    return next((kind for kind in KINDS if any(part in f"{text} " for part in kind.models)), None)


def relative_speed(measured: GpuKind, wanted: GpuKind) -> RelativeSpeed:
    if measured == wanted:
        return SAME
    ratios = sorted((wanted.tflops / measured.tflops, wanted.gb_per_s / measured.gb_per_s))
    return RelativeSpeed(ratios[0], sqrt(ratios[0] * ratios[1]), ratios[1])
