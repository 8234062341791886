"""The keeper alone, with a command that leaves its session."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gristmill.core import keeper

RUNAWAY = """
import os, signal, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        open(sys.argv[1] + ".part", "w").write(str(os.getpid()))
        os.rename(sys.argv[1] + ".part", sys.argv[1])
        time.sleep(100)
    os._exit(0)
time.sleep(float(sys.argv[2]))
print("the end of the log")
"""

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="sub-reapers are Linux's")


def kept(folder: Path, seconds: float) -> tuple[subprocess.Popen[bytes], int]:
    """A keeper, and the process that has left its command's session and outlives its parent."""
    note = folder.parent / "pid"
    command = [sys.executable, "-c", RUNAWAY, str(note), str(seconds)]
    folder.mkdir()
    process = subprocess.Popen(
        [sys.executable, "-I", keeper.__file__, str(os.getpid()), str(folder), *command], stdin=-1, stdout=-1
    )
    until = time.monotonic() + 300
    while not (note.exists() and note.read_text()):
        assert time.monotonic() < until, "the command has not begun"
        time.sleep(0.01)
    return process, int(note.read_text())


def test_when_standard_input_closes_all_processes_end(tmp_path: Path) -> None:
    process, runaway = kept(tmp_path / "folder", 100)
    out, _ = process.communicate(timeout=300)
    assert out == b""
    assert not Path(f"/proc/{runaway}").exists()
    assert not (tmp_path / "folder").exists()


def test_when_the_command_ends_its_log_is_printed_and_all_processes_end(tmp_path: Path) -> None:
    process, runaway = kept(tmp_path / "folder", 0.3)
    assert process.stdout and process.stdin
    with process:
        assert process.stdout.read() == b"the end of the log\n"
    assert not Path(f"/proc/{runaway}").exists()
    assert not (tmp_path / "folder").exists()
