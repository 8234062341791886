"""How Prometheus finds the runs of this machine: a folder with one small file for each run that serves metrics.

The files are in the format of Prometheus' file discovery. Labels that begin with two underscores are for gristmill:
Prometheus drops them. They name the process, so that files of runs that were killed can be removed.
"""

from __future__ import annotations

import json
import os
import re
import socket
import tempfile
from contextlib import suppress
from pathlib import Path

FOLDER_VARIABLE = "GRISTMILL_METRICS_DIR"
PATTERN = "run-*.json"
_HOST, _PID, _START = "__gristmill_host__", "__gristmill_pid__", "__gristmill_start__"


def discovery_folder(given: str | None = None) -> Path:
    """Return the folder: the given one, that of the environment, or one among the user's state files."""
    if given or os.environ.get(FOLDER_VARIABLE):
        return Path(given or os.environ[FOLDER_VARIABLE]).expanduser().absolute()
    return state_folder() / "runs"


def state_folder() -> Path:
    """Return the folder of the user for what monitoring keeps."""
    state = os.environ.get("XDG_STATE_HOME", "")
    home = Path(state) if os.path.isabs(state) else Path("~/.local/state").expanduser()
    return home / "gristmill" / "metrics"


class TargetFile:
    """The file of one run, from its creation to `remove`."""

    def __init__(self, folder: Path, run: str, address: str) -> None:
        """Write the file, and remove those of runs that were killed. Raise `OSError` if that fails."""
        folder.mkdir(parents=True, exist_ok=True)
        remove_stale(folder)
        self.path = folder / f"run-{re.sub(r'[^A-Za-z0-9_.-]', '_', run)}.json"
        labels = {_HOST: socket.gethostname(), _PID: str(os.getpid()), _START: _start_of(os.getpid())}
        write_whole(self.path, json.dumps([{"targets": [address], "labels": labels}]))

    def remove(self) -> None:
        with suppress(OSError):
            self.path.unlink()


def remove_stale(folder: Path) -> list[Path]:
    """Remove the files of runs of this machine whose process has ended. Return them."""
    removed = []
    for path in sorted(folder.glob(PATTERN)):
        if _is_stale(path):
            with suppress(OSError):
                path.unlink()
                removed.append(path)
    return removed


def _is_stale(path: Path) -> bool:
    try:
        labels = json.loads(path.read_bytes())[0]["labels"]
        host, pid, start = labels[_HOST], int(labels[_PID]), labels[_START]
    except (OSError, ValueError, LookupError, TypeError):
        return False  # not ours, or of another version
    if host != socket.gethostname():
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except (PermissionError, OverflowError):
        pass
    return bool(start) and _start_of(pid) not in ("", start)


def _start_of(pid: int) -> str:
    """Return when a process started, in ticks since the start of the system: ids of processes are used again."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return ""
    return stat.rpartition(")")[2].split()[19]


def write_whole(path: Path, text: str) -> None:
    """Write a file so that no reader ever sees a part of it."""
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=".gristmill-")
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(name, 0o644)
        os.replace(name, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(name)
        raise
