"""Cosmos-Embed1 by the Python code in its checkpoint. Imports torch and transformers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from gristmill.errors import ModelError


class Published(nn.Module):
    """The embeddings of a model with the interface of Cosmos-Embed1.

    Input: uint8, (clips, frames, height, width, 3).
    """

    def __init__(self, model: Any, processor: Any) -> None:
        super().__init__()
        self.model = model
        self.processor = processor

    def forward(self, pixels: Tensor) -> Tensor:
        first = next(self.model.parameters())
        frames = pixels.permute(0, 1, 4, 2, 3).cpu().numpy()
        videos = self.processor(videos=frames, return_tensors="pt")["videos"]
        found = self.model.get_video_embeddings(videos=videos.to(first.device, first.dtype))
        embeddings: Tensor = found.visual_proj.float()
        return embeddings


def published_cosmos(folder: Path, device: torch.device, dtype: torch.dtype) -> Published:
    """Load the model and the processor of a folder by the code in it, or raise a `ModelError`."""
    import transformers

    from_folder = {"trust_remote_code": True, "local_files_only": True}
    try:
        model: Any = transformers.AutoModel.from_pretrained(str(folder), **from_folder)
        processor: Any = transformers.AutoProcessor.from_pretrained(str(folder), **from_folder)
    except Exception as error:  # the code in a checkpoint raises errors of any kind
        reason = str(error).strip().partition("\n")[0]
        raise ModelError(
            f"the code in {folder} failed: {type(error).__name__}: {reason}\n    install the packages that it imports, "
            "and a version of transformers that it was written for."
        ) from None
    return Published(model.eval().requires_grad_(False).to(device, dtype), processor)
