"""Runs a command and leaves nothing of it behind: neither a process nor the folder it works in.

The keeper is a small interpreter, run by its path, between its owner, which wants a cluster, and the cluster.
Its standard input stays open while the owner needs the command. When it closes, or the owner is no longer the
keeper's parent, the keeper terminates the command, then kills all processes that came from it, in whatever session: the
keeper is a sub-reaper, so all of them stay below it. The end of its standard output means that nothing is left. If the
command ends by itself, the end of its log is printed before.

    python keeper.py OWNER FOLDER COMMAND...
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from types import FrameType

LOG = "head.log"
LOG_BYTES = 4000
POLL_S = 0.2
TERMINATE_S = 8.0
"""How long the command may take to end what it started, before all of it is killed."""
KILL_S = 60.0
"""How long killed processes may take to end, before the keeper gives up."""
_PR_SET_CHILD_SUBREAPER = 36


def keep(owner: int, folder: str, command: list[str]) -> None:
    """Run the command until standard input closes, the owner ends, or the command ends."""
    log = os.path.join(folder, LOG)
    with open(log, "wb") as file:
        child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=file, stderr=file)
    try:
        while child.poll() is None and os.getppid() == owner:
            ready, _, _ = select.select([0], [], [], POLL_S)
            if ready:  # closed: nothing is ever written to it
                break
        if child.returncode is not None:
            _print_end(log)
        else:
            child.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(TERMINATE_S)
    finally:
        kill_descendants()
        shutil.rmtree(os.path.realpath(folder), ignore_errors=True)
        if os.path.islink(folder):
            os.unlink(folder)


def kill_descendants() -> None:
    """Kill all processes below this one and wait for their end. A busy machine may take seconds to end a process."""
    until = time.monotonic() + KILL_S
    while time.monotonic() < until:
        found = descendants()
        for pid in found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            if not found:
                return
        time.sleep(0.01)


def descendants() -> list[int]:
    """Return the processes below this one."""
    children: dict[int, list[int]] = {}
    for pid, parent in _parents():
        children.setdefault(parent, []).append(pid)
    found = list(children.get(os.getpid(), ()))
    for pid in found:
        found += children.get(pid, ())  # the loop continues with what is added
    return found


def _parents() -> list[tuple[int, int]]:
    """Return each process of this machine with its parent."""
    if not os.path.isdir("/proc/self"):
        listed = subprocess.run(["ps", "-A", "-o", "pid=,ppid="], capture_output=True, text=True, check=False).stdout
        return [(int(pid), int(parent)) for pid, parent in (line.split() for line in listed.splitlines())]
    pairs = []
    for name in filter(str.isdecimal, os.listdir("/proc")):
        with contextlib.suppress(OSError), open(f"/proc/{name}/stat") as file:  # it may have ended
            pairs.append((int(name), int(file.read().rpartition(")")[2].split()[1])))
    return pairs


def _print_end(log: str) -> None:
    with open(log, "rb") as file:
        file.seek(max(0, os.path.getsize(log) - LOG_BYTES))
        end = file.read()
    with contextlib.suppress(OSError):  # the owner has closed the pipe
        os.write(1, end)


def _ignore(signum: int, frame: FrameType | None) -> None:
    """Leave the decision to the owner. Not SIG_IGN, which the command would inherit."""


def main() -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _ignore)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)
    keep(int(sys.argv[1]), sys.argv[2], sys.argv[3:])


if __name__ == "__main__":
    main()
