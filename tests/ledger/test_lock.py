"""One run at a time in an output folder."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

import pytest
from tests.stages.deduplication.corpora import execute, write_jsonl

from gristmill.errors import OutputChanged, PlanError
from gristmill.ledger import lock
from gristmill.ledger.lock import LOCK, FolderLock, is_locked
from gristmill.pipeline import verify
from gristmill.pipeline.phases import run as phases
from gristmill.stages.deduplication.exact import ExactDeduplication
from gristmill.stages.text.io import JsonlReader, JsonlWriter
from gristmill.storage import Folder


def test_a_run_is_not_refused_because_another_command_looks_whether_it_is_locked(tmp_path, monkeypatch):
    first = FolderLock(Folder(tmp_path))
    first.acquire()
    first.release()
    looks = os.open(tmp_path / LOCK, os.O_RDONLY)
    fcntl.flock(looks, fcntl.LOCK_SH)  # as `is_locked` does, for a moment
    waits = []

    def wait(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 2:
            os.close(looks)

    monkeypatch.setattr(lock.time, "sleep", wait)
    second = FolderLock(Folder(tmp_path))
    second.acquire()
    assert len(waits) == 2 and is_locked(Folder(tmp_path))
    second.release()
    assert not is_locked(Folder(tmp_path))


def test_a_run_that_writes_refuses_another(tmp_path, monkeypatch):
    monkeypatch.setattr(lock.time, "sleep", lambda seconds: None)
    first, second = FolderLock(Folder(tmp_path)), FolderLock(Folder(tmp_path))
    first.acquire()
    with pytest.raises(OutputChanged, match="another run is writing"):
        second.acquire()
    first.release()


def test_a_run_in_phases_holds_the_lock_until_its_last_file_is_in_place(tmp_path: Path, monkeypatch):
    write_jsonl(tmp_path / "in" / "a.jsonl", [{"text": f"text {n // 2}"} for n in range(10)])
    locked = []
    real = phases.put_beside

    def put_beside(*arguments) -> None:
        locked.append(is_locked(Folder(tmp_path / "out")))
        real(*arguments)

    monkeypatch.setattr(phases, "put_beside", put_beside)
    execute(JsonlReader(str(tmp_path / "in")), ExactDeduplication(), JsonlWriter(str(tmp_path / "out")))
    assert locked == [True]
    assert not is_locked(Folder(tmp_path / "out"))


def test_verify_does_not_report_damage_when_a_run_starts_meanwhile(tmp_path, monkeypatch):
    write_jsonl(tmp_path / "in" / "a.jsonl", [{"text": f"text {n}"} for n in range(10)])
    execute(JsonlReader(str(tmp_path / "in")), JsonlWriter(str(tmp_path / "out")))
    run = FolderLock(Folder(tmp_path / "out"))

    def starts_now(*arguments, contents: bool) -> str:
        run.acquire()
        return "part-000000.jsonl is missing"

    monkeypatch.setattr(verify, "difference", starts_now)
    with pytest.raises(PlanError, match=r"a run wrote to .* while it was verified"):
        verify.verify_output(str(tmp_path / "out"))
    run.release()
