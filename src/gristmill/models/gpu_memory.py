"""Keep a process within its share of a GPU's memory."""

from __future__ import annotations

from gristmill.errors import ModelError

CONTEXT_BYTES = 1 << 30
"""The GPU memory of a process besides its tensors: the CUDA context, loaded kernels and workspaces of libraries."""
LEAST_BYTES = 256 << 20


def limit_memory(share: float) -> None:
    """Let this process use at most ``share`` of the current GPU's memory, everything included.

    An allocation beyond it raises `torch.OutOfMemoryError`, as on a full GPU.
    """
    import torch

    total = torch.cuda.get_device_properties(torch.cuda.current_device()).total_memory
    tensors = share * total - CONTEXT_BYTES
    if tensors < LEAST_BYTES:
        raise ModelError(
            f"a share of {share:.0%} of this GPU is {share * total / 2**30:.1f} GB, too little for a model: a process "
            f"needs {CONTEXT_BYTES / 2**30:.0f} GB besides its tensors.\n    ask for more with gpus= or gpu_memory_gb=."
        )
    torch.cuda.set_per_process_memory_fraction(tensors / total)
