"""Documents of real text, with the lengths of the other benchmarks of models."""

from __future__ import annotations

import gzip
import re
from pathlib import Path

import numpy as np

CHARACTERS = 5.1
"""Of a token, roughly."""
LEAST, MOST, SPREAD = 16, 512, 0.8


def slices(source: Path, count: int, seed: int, median_tokens: float = 270) -> list[str]:
    """Slices of a text that begin and end anywhere: lengths are log-normal, of at most 512 tokens, 291 on average."""
    opened = gzip.open if source.suffix == ".gz" else open
    with opened(source, "rt", encoding="utf-8") as file:
        text = re.sub(r"\s+", " ", file.read())
    rng = np.random.default_rng(seed)
    lengths = (np.clip(rng.lognormal(np.log(median_tokens), SPREAD, count), LEAST, MOST) * CHARACTERS).astype(int)
    starts = rng.integers(0, len(text) - 4000, count)
    begins = [text.find(" ", start) + 1 for start in starts.tolist()]
    return [text[begin : begin + length] for begin, length in zip(begins, lengths.tolist(), strict=True)]
