"""The lists of documents to remove, by file."""

import json
import tracemalloc

import numpy as np
import pytest

from gristmill.stages.deduplication.semantic import removal
from gristmill.stages.deduplication.semantic.removal import RECORD, write_removed
from gristmill.stages.deduplication.semantic.store import EmbeddingStore


def pieces(removals, size=100):
    """(sources, similarities) of files a#, b, ..., as they come: every cluster has documents of all files."""
    for start in range(0, removals, size):
        numbers = range(start, min(start + size, removals))
        yield [f"/in/{'ba#dc'[i % 5]}#{i * 7919 % removals}" for i in numbers], [i / removals for i in numbers]


@pytest.mark.parametrize("held", [1, 250, removal.HELD])
def test_removals_are_noted_by_file_in_order_however_many_are_held(tmp_path, monkeypatch, held):
    monkeypatch.setattr(removal, "HELD", held)
    expected = {}
    for sources, similarities in pieces(1003):
        for source, similarity in zip(sources, similarities, strict=True):
            path, _, position = source.rpartition("#")
            expected.setdefault(path, []).append((int(position), similarity))
    store = EmbeddingStore(str(tmp_path))
    assert write_removed(store, pieces(1003)) == 1003
    index = json.loads((tmp_path / "removed.json").read_text())
    assert index == {path: f"removed-{n:06d}.npy" for n, path in enumerate(sorted(expected))}
    for path, removals in expected.items():
        np.save(tmp_path / "plain.npy", np.array(sorted(removals), dtype=RECORD))
        assert (tmp_path / index[path]).read_bytes() == (tmp_path / "plain.npy").read_bytes()
    (tmp_path / "plain.npy").unlink()
    assert {file.name for file in tmp_path.iterdir()} == {"removed.json", *index.values()}


def test_no_removals_are_noted_as_well(tmp_path):
    assert write_removed(EmbeddingStore(str(tmp_path)), []) == 0
    assert json.loads((tmp_path / "removed.json").read_text()) == {}


def test_removals_of_all_files_are_not_in_memory_at_once(tmp_path, monkeypatch):
    monkeypatch.setattr(removal, "HELD", 1000)
    tracemalloc.start()
    try:
        write_removed(EmbeddingStore(str(tmp_path)), pieces(50_000))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 16 * 50_000
