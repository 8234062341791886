"""Embeddings as whole numbers, so that results do not depend on the order of computation.

An embedding is scaled to length one and rounded to a grid of `GRID` * ``fine`` steps. A coordinate on it is
``coarse * fine + rest``. Dot products of such parts are whole numbers below 2**24, which float32 holds exactly, as are
all partial sums in any order: by Cauchy and Schwarz none exceeds the product of the lengths. So block sizes, threads,
libraries and devices all give the same bits.
"""

from __future__ import annotations

import math

from gristmill.lazy import np

GRID = 2048
"""Coarse steps on a length of one. Three times its square is below 2**24, so squared distances are exact too."""
MAX_FINE = 256
EXACT = 1 << 24
"""Float32 holds whole numbers up to this exactly."""
MAX_DIM = 1 << 16


def fine_steps(dim: int) -> int:
    """Return how many fine steps a coarse one has in ``dim`` dimensions: a power of two.

    As many as keep ``coarse . rest + rest . coarse`` exact. 256 for 384 dimensions: similarities to a millionth or so.
    """
    longest = GRID + math.sqrt(dim) / 2
    steps = MAX_FINE
    while steps > 1 and longest * math.sqrt(dim) * steps > EXACT:
        steps //= 2
    return steps


def to_grid(vectors: np.ndarray) -> np.ndarray:
    """Return rows of finite numbers, none of them all zeros, as int32 on the grid."""
    dim = vectors.shape[1]
    rows = vectors.astype(np.float64)
    rows /= np.abs(rows).max(axis=1, keepdims=True)  # squares of huge and tiny numbers would overflow or vanish
    rows /= np.sqrt((rows * rows).sum(axis=1, keepdims=True))
    rows *= GRID * fine_steps(dim)
    points: np.ndarray = np.rint(rows).astype(np.int32)
    return points


def coarse(points: np.ndarray) -> np.ndarray:
    """Return the coarse parts of points on the grid, as int16: nearly the same vectors in half the memory."""
    found: np.ndarray = whole_steps(points).astype(np.int16)
    return found


def whole_steps(points: np.ndarray) -> np.ndarray:
    """Return the number of coarse steps nearest to each coordinate, as int32."""
    steps = fine_steps(points.shape[1])
    found: np.ndarray = (points + steps // 2) >> (steps.bit_length() - 1)
    return found


def cosine(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Return the cosine similarity of each row to the same row of the other; both on the grid.

    Equal rows give 1.0 and nothing gives more.
    """
    left, right = one.astype(np.int64), other.astype(np.int64)
    dot = np.einsum("ij,ij->i", left, right).astype(np.float64)
    lengths = squares(one).astype(np.float64) * squares(other).astype(np.float64)
    found: np.ndarray = np.clip(dot / np.sqrt(np.maximum(lengths, 1.0)), -1.0, 1.0)
    return found


def squares(points: np.ndarray) -> np.ndarray:
    """Return the squared length of each row, as int64."""
    wide = points.astype(np.int64)
    found: np.ndarray = np.einsum("ij,ij->i", wide, wide)
    return found
