"""The same things computed in the plainest way, to compare with."""

import numpy as np


def unit(vectors):
    vectors = np.asarray(vectors, dtype=np.float64)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def best_before(vectors):
    """(the most similar one before, similarity) of each row of ranked embeddings, by all similarities at once."""
    similarity = unit(vectors) @ unit(vectors).T
    similarity[np.triu_indices(len(vectors))] = -np.inf
    best = similarity.argmax(axis=1)
    return best[1:], similarity.max(axis=1)[1:]


def planted(count, dim, copies, seed=0, groups=8, noise=0.05):
    """Embeddings in ``groups``; the last ``copies`` are those of the first, changed a little."""
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(groups, dim))
    vectors = centres[rng.integers(groups, size=count)] + 1.2 * rng.normal(size=(count, dim))
    vectors[count - copies :] = vectors[:copies] + noise * rng.normal(size=(copies, dim))
    return vectors.astype(np.float32)
