"""Files of the store appear whole or not at all."""

import os

import numpy as np

from gristmill.stages.deduplication.semantic.store import EmbeddingStore


def test_two_machines_whose_processes_have_one_number_do_not_write_to_one_file(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "getpid", lambda: 7)
    store, used = EmbeddingStore(str(tmp_path)), []
    replace = os.replace
    monkeypatch.setattr(os, "replace", lambda old, new: (used.append(os.path.basename(old)), replace(old, new)))
    for _ in range(2):
        store.write(store.file("parts.json"), b"{}")
        store.save("centroids.npy", np.arange(3))
    assert len(set(used)) == 4
    assert all(".tmp-" in name for name in used)
    assert sorted(os.listdir(tmp_path)) == ["centroids.npy", "parts.json"]
