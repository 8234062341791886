"""A block counts as done when its files and its commit are on the disk, not before."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.ledger.conftest import written
from tests.ledger.test_damage import stages
from tests.stages.deduplication.corpora import execute

from gristmill.errors import PipelineError


@pytest.mark.parametrize("kind", ["filter", "put aside"])
def test_files_are_synced_before_their_commit_and_folders_after_the_names(kind, corpus, tmp_path, monkeypatch):
    out = tmp_path / "out"
    synced: list[str] = []
    fsync = os.fsync

    def noted(descriptor: int) -> None:
        synced.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", noted)
    execute(*stages(kind, corpus, out))
    commit = next(i for i, path in enumerate(synced) if path.startswith(f"{out}/_gristmill/commits/.tmp-"))
    files = [str(out / name) for name in written(out) if "phase1" not in name and "duplicates" not in name]
    assert len(files) > 5 and all(synced.index(path) < commit for path in files)
    folders = {str(Path(path).parent) for path in files}
    assert all(max(i for i, path in enumerate(synced[:commit]) if path == folder) for folder in folders)
    assert str(out / "_gristmill/commits") in synced[commit:]
    assert set(files) | {str(out / name) for name in written(out)} <= set(synced)


def test_an_error_of_the_disk_while_a_commit_is_written_fails_the_run(corpus, tmp_path, monkeypatch):
    from gristmill.storage import Folder

    def broken(self: Folder, names) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(Folder, "sync", broken)
    monkeypatch.setattr("gristmill.ledger.commits._FLUSH_S", 0)
    with pytest.raises(PipelineError, match="cannot be written to: Input/output error"):
        execute(*stages("filter", corpus, tmp_path / "out"))
    monkeypatch.undo()
    execute(*stages("filter", corpus, tmp_path / "out"))
    execute(*stages("filter", corpus, tmp_path / "whole"))
    assert written(tmp_path / "out") == written(tmp_path / "whole")
