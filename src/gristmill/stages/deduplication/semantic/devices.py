"""Torch, where it is needed, and what it runs on."""

from __future__ import annotations

from typing import Any

DEVICES = (None, "cpu", "cuda")


def load_torch() -> Any:
    try:
        import torch
    except ImportError:
        raise ImportError("semantic deduplication needs torch: pip install 'gristmill[models]'.") from None
    return torch


def pick_device(wanted: str | None) -> Any:
    """The torch device of a name; None: a GPU if there is one."""
    torch = load_torch()
    there = torch.cuda.is_available()
    if wanted == "cuda" and not there:
        raise RuntimeError("device='cuda' was asked for, but torch finds no GPU here. device='cpu' runs without one.")
    device = torch.device("cuda" if there and wanted in (None, "cuda") else "cpu")
    if device.type == "cuda":
        # Rounding the factors to 11 bits would still be exact for the grid; how the sums are kept is not documented.
        torch.backends.cuda.matmul.allow_tf32 = False
    return device


def free_bytes(device: Any) -> int | None:
    """Half of what is free on a GPU, for one worker's arrays; None where the memory is the machine's."""
    if device.type != "cuda":
        return None
    free, _ = load_torch().cuda.mem_get_info(device)
    return int(free) // 2


def gpu_peak(device: Any) -> int:
    """The most bytes that this process has held on a GPU."""
    return int(load_torch().cuda.max_memory_allocated(device)) if device.type == "cuda" else 0


class OnDevice:
    """The device of a stage's worker, found when it is first needed."""

    device_name: str | None = None

    @property
    def device(self) -> Any:
        found = self.__dict__.get("_device")
        if found is None:
            found = self.__dict__["_device"] = pick_device(self.device_name)
        return found
