"""Retrieval of captions by ConSE: how often the caption of an image is the most similar of all.

    python benchmarks/images/conse.py /usr/share/tuxpaint/stamps --count 100

The folder has images with captions beside them: the first line of the .txt file (Debian's tuxpaint-stamps-default).
Needs the package timm for the names of the classes: pip install --no-deps timm.
"""

from __future__ import annotations

import argparse
import random
import time
from pathlib import Path

import numpy as np
import pyarrow as pa

from gristmill.stages.asynchronous import results_of
from gristmill.stages.image.filters.conse import ConSESimilarityFilterStage
from gristmill.stages.image.filters.scored import embeddings_of
from gristmill.tasks.image import CAPTION, IMAGE, ImageBatch

SKIPPED = ("symbols", "cartoon", "mirror")
"""Parts of the paths of pictures that are drawings."""


def pairs(folder: Path, count: int, seed: int) -> list[tuple[Path, str]]:
    """Images with different captions."""
    found: dict[str, Path] = {}
    for path in sorted(folder.rglob("*.png")):
        text = path.with_suffix(".txt")
        if text.exists() and not any(word in str(path.relative_to(folder)) for word in SKIPPED):
            lines = text.read_text(encoding="utf-8", errors="replace").splitlines()
            if lines and lines[0].strip():
                found.setdefault(lines[0].strip(), path)
    every = [(path, caption) for caption, path in found.items()]
    return random.Random(seed).sample(every, count) if count < len(every) else every


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    chosen = pairs(options.folder, options.count, options.seed)
    table = pa.table(
        {
            IMAGE: pa.array([path.read_bytes() for path, _ in chosen], pa.large_binary()),
            CAPTION: pa.array([caption for _, caption in chosen]),
        }
    )
    task = ImageBatch(data=table)
    *stages, similarity = ConSESimilarityFilterStage().flatten()
    for stage in stages:
        stage.setup()
        start = time.process_time()
        [task] = results_of(stage, task)  # type: ignore[assignment]
        print(f"{stage.name}: {(time.process_time() - start) / len(chosen) * 1000:.1f} ms of CPU per image")
    images = embeddings_of(task, similarity.inputs()[1][0])[0]
    texts = embeddings_of(task, similarity.inputs()[1][1])[0]
    scores = images @ texts.T
    for name, matrix in (("image to caption", scores), ("caption to image", scores.T)):
        ranks = (matrix > np.diag(matrix)[:, None]).sum(axis=1)
        found = ", ".join(f"R@{k} {np.mean(ranks < k):.3f} (chance {k / len(chosen):.3f})" for k in (1, 5, 10))
        print(f"{name}, {len(chosen)} pairs: {found}")


if __name__ == "__main__":
    main()
