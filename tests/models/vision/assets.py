"""Where real heads for embeddings of CLIP are: not in the repository."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

VARIABLE = "GRISTMILL_CLIP_HEADS"


def clip_heads() -> Path:
    """The folder of the heads, or the test is skipped."""
    beside = Path(__file__).resolve().parents[4] / "shared" / "assets" / "clip-heads"
    folder = Path(os.environ.get(VARIABLE) or beside)
    if not folder.is_dir():
        pytest.skip(f"there is no folder {folder} with real heads; {VARIABLE} names another one")
    return folder


RATED = {
    "aesthetic-linear-vit-l-14": [-2.4579, -0.1379, 1.8951, 3.5849, 5.0997, 6.4701, 7.7870, 9.0480, 10.2264, 11.3044],
    "aesthetic-linear-vit-b-32": [-1.4700, 0.2728, 1.9900, 3.6114, 5.0874, 6.3926, 7.6682, 8.9155, 9.9166, 11.0056],
    "aesthetic-mlp-vit-l-14": [1.6555, 2.3593, 3.0698, 3.6725, 4.2380, 4.7010, 5.0731, 5.3654, 5.5767, 5.7468],
}
"""Scores of the ten rated embeddings."""
