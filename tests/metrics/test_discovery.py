"""The files by which Prometheus finds runs."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from gristmill.metrics.discovery import PATTERN, TargetFile, discovery_folder, remove_stale


def test_a_run_leaves_its_address_and_takes_it_away(tmp_path: Path) -> None:
    target = TargetFile(tmp_path / "new" / "folder", "r1", "127.0.0.1:9123")
    (path,) = (tmp_path / "new" / "folder").glob(PATTERN)
    (group,) = json.loads(path.read_text())
    assert group["targets"] == ["127.0.0.1:9123"]
    assert all(name.startswith("__") and isinstance(value, str) for name, value in group["labels"].items())
    assert path.stat().st_mode & 0o777 == 0o644
    target.remove()
    target.remove()
    assert not list((tmp_path / "new" / "folder").iterdir())


def test_the_name_of_a_file_stays_in_the_folder(tmp_path: Path) -> None:
    target = TargetFile(tmp_path, "../../etc/x y\n", "127.0.0.1:1")
    assert target.path.parent == tmp_path
    assert list(tmp_path.glob(PATTERN)) == [target.path]


HOLD = """
import sys, time
from pathlib import Path
from gristmill.metrics.discovery import TargetFile
TargetFile(Path(sys.argv[1]), sys.argv[2], "127.0.0.1:1")
print("ready", flush=True)
time.sleep(600)
"""


def test_the_file_of_a_killed_run_is_removed_by_the_next_one_and_that_of_a_live_one_is_not(tmp_path: Path) -> None:
    holders = [
        subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path), name], stdout=subprocess.PIPE, text=True)
        for name in ("killed", "alive")
    ]
    try:
        for holder in holders:
            assert holder.stdout is not None
            assert holder.stdout.readline() == "ready\n"
        holders[0].send_signal(signal.SIGKILL)
        holders[0].wait()
        assert {path.name for path in tmp_path.glob(PATTERN)} == {"run-killed.json", "run-alive.json"}
        TargetFile(tmp_path, "next", "127.0.0.1:2")
        assert {path.name for path in tmp_path.glob(PATTERN)} == {"run-alive.json", "run-next.json"}
    finally:
        for holder in holders:
            holder.kill()
            holder.communicate()


def changed(path: Path, **labels: str) -> None:
    (group,) = json.loads(path.read_text())
    group["labels"] |= {f"__gristmill_{name}__": value for name, value in labels.items()}
    path.write_text(json.dumps([group]))


def test_a_process_id_that_is_used_again_does_not_keep_a_file(tmp_path: Path) -> None:
    if not Path("/proc/self/stat").exists():
        pytest.skip("the start of a process is known on Linux only")
    target = TargetFile(tmp_path, "r1", "127.0.0.1:1")
    assert remove_stale(tmp_path) == []
    changed(target.path, start="1")
    assert remove_stale(tmp_path) == [target.path]


def test_files_of_other_machines_and_of_others_stay(tmp_path: Path) -> None:
    target = TargetFile(tmp_path, "r1", "127.0.0.1:1")
    changed(target.path, host="another", pid="1", start="1")
    others = ["{", "[]", '[{"labels": {}}]', '[{"labels": 3}]', '{"a": 1}', ""]
    for n, text in enumerate(others):
        (tmp_path / f"run-{n}.json").write_text(text)
    assert remove_stale(tmp_path) == []
    assert len(list(tmp_path.glob(PATTERN))) == len(others) + 1


def test_the_folder_is_the_given_one_or_that_of_the_environment_or_among_the_users_state_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("GRISTMILL_METRICS_DIR", raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    assert discovery_folder() == tmp_path / "state" / "gristmill" / "metrics" / "runs"
    monkeypatch.setenv("XDG_STATE_HOME", "relative")  # the specification says to ignore it
    assert discovery_folder() == Path.home() / ".local" / "state" / "gristmill" / "metrics" / "runs"
    monkeypatch.setenv("GRISTMILL_METRICS_DIR", str(tmp_path / "env"))
    assert discovery_folder() == tmp_path / "env"
    assert discovery_folder(str(tmp_path / "given")) == tmp_path / "given"


def test_a_folder_that_cannot_be_written_to_is_an_error_of_the_system(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError):
        TargetFile(tmp_path / "file", "r1", "127.0.0.1:1")
    assert os.listdir(tmp_path) == ["file"]
