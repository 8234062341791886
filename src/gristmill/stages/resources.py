"""The resources that a worker of a stage needs."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from numbers import Real


@dataclass(frozen=True)
class Resources:
    """The resources that one worker of a stage needs. Wrong values raise ValueError at once.

        Resources(cpus=4)                        # four cores
        Resources(gpus=1)                        # a GPU of its own
        Resources(gpus=0.25)                     # four workers share a GPU
        Resources(cpus=2, gpu_memory_gb=16)      # the share of one GPU that has 16 GB, wherever it is placed

    ``gpus`` and ``gpu_memory_gb`` exclude each other. ``cpus`` may be 0 for a stage that only waits.
    A GB is 2**30 bytes.
    """

    cpus: float = 1.0
    gpus: float = 0.0
    gpu_memory_gb: float = 0.0
    memory_gb: float = 0.0
    """RAM."""

    def __post_init__(self) -> None:
        for f in fields(self):
            object.__setattr__(self, f.name, _amount(f.name, getattr(self, f.name)))
        if self.gpus and self.gpu_memory_gb:
            raise ValueError(
                f"Resources: give gpus={self.gpus:g} or gpu_memory_gb={self.gpu_memory_gb:g}, not both: "
                "gpu_memory_gb becomes a share of one GPU."
            )
        if self.gpus > 1 and not self.gpus.is_integer():
            raise ValueError(
                f"Resources: gpus={self.gpus:g} is a fraction above one GPU. "
                f"Use a share of one (at most 1) or whole GPUs ({math.floor(self.gpus)} or {math.ceil(self.gpus)})."
            )

    @property
    def requires_gpu(self) -> bool:
        return self.gpus > 0 or self.gpu_memory_gb > 0

    def __str__(self) -> str:
        asked = [f"{f.name}={getattr(self, f.name):g}" for f in fields(self) if getattr(self, f.name)]
        return ", ".join(asked) or "cpus=0"


def _amount(name: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, Real):
        raise ValueError(f"Resources: {name} must be a number, not {value!r} ({type(value).__name__}).")
    amount = float(value)
    if not math.isfinite(amount):
        raise ValueError(f"Resources: {name} must be finite, not {amount}.")
    if amount < 0:
        raise ValueError(f"Resources: {name} must not be negative, but is {amount:g}.")
    return amount
