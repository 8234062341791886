"""The same things computed in the plainest way, to compare with."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq


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


def write_jsonl(path, rows):
    path.parent.mkdir(exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def write_parquet(path, vectors, first=0, row_group_size=100, **columns):
    path.parent.mkdir(exist_ok=True)
    table = pa.table(
        {
            "id": [f"doc-{first + i}" for i in range(len(vectors))],
            "embeddings": pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), vectors.shape[1]),
            **columns,
        }
    )
    pq.write_table(table, path, row_group_size=row_group_size)


def records(out, name="duplicates"):
    return pq.read_table(out / name).to_pylist()


def ids_in(file):
    return pq.read_table(file).column("id").to_pylist()
