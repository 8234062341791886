"""Runs a command and leaves nothing of it behind: neither a process nor the folder it works in.

The keeper is a small interpreter of its own, run by its path, between whoever wants a cluster and the cluster. Its
standard input is the lifeline: when that closes, or the owner is no longer its parent, the command is told to end, and
then everything that came from it is killed, whatever session it moved to: the keeper is a sub-reaper, so all of it
stays below the keeper. The end of its standard output says that nothing is left; if the command ended before it was
told to, the last lines of its log come first.

    python keeper.py OWNER FOLDER COMMAND...
"""

from __future__ import annotations

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
LAST_BYTES = 4000
LOOK_S = 0.2
PATIENCE_S = 8.0
"""How long the command may take to end what it started, before all is killed."""
KILL_S = 60.0
"""How long killed processes may take to end, before the keeper gives up."""
_PR_SET_CHILD_SUBREAPER = 36


def keep(owner: int, folder: str, command: list[str]) -> None:
    """Run the command until the owner has had enough of it, or it ends by itself."""
    with open(os.path.join(folder, LOG), "wb") as log:
        child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        while child.poll() is None and os.getppid() == owner:
            ready, _, _ = select.select([0], [], [], LOOK_S)
            if ready:  # closed: nothing is ever written to it
                break
        if child.returncode is not None:
            _tell(os.path.join(folder, LOG))
        else:
            child.terminate()
            _wait(child, PATIENCE_S)
    finally:
        kill_descendants()
        shutil.rmtree(os.path.realpath(folder), ignore_errors=True)
        if os.path.islink(folder):
            os.unlink(folder)


def kill_descendants() -> None:
    """Kill all that came from this process, until nothing is left. A busy machine may take seconds to end a process."""
    until = time.monotonic() + KILL_S
    while time.monotonic() < until:
        found = descendants()
        for pid in found:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            if not found:
                return
        time.sleep(0.01)


def descendants() -> list[int]:
    """The processes below this one, by the table of all processes."""
    children: dict[int, list[int]] = {}
    for pid, parent in _parents():
        children.setdefault(parent, []).append(pid)
    found = list(children.get(os.getpid(), ()))
    for pid in found:
        found += children.get(pid, ())  # the loop goes on into what is added
    return found


def _parents() -> list[tuple[int, int]]:
    if not os.path.isdir("/proc/self"):
        listed = subprocess.run(["ps", "-A", "-o", "pid=,ppid="], capture_output=True, text=True, check=False).stdout
        return [(int(pid), int(parent)) for pid, parent in (line.split() for line in listed.splitlines())]
    pairs = []
    for name in os.listdir("/proc"):
        if name.isdecimal():
            try:
                with open(f"/proc/{name}/stat") as file:
                    pairs.append((int(name), int(file.read().rpartition(")")[2].split()[1])))
            except OSError:  # it has ended
                pass
    return pairs


def _wait(child: subprocess.Popen[bytes], seconds: float) -> None:
    try:
        child.wait(seconds)
    except subprocess.TimeoutExpired:
        pass


def _tell(log: str) -> None:
    with open(log, "rb") as file:
        file.seek(max(0, os.path.getsize(log) - LAST_BYTES))
        words = file.read()
    try:
        os.write(1, words)
    except OSError:  # nobody listens
        pass


def _ignore(signum: int, frame: FrameType | None) -> None:
    """The owner decides. Not SIG_IGN: the command would inherit that."""


def main() -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _ignore)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)
    keep(int(sys.argv[1]), sys.argv[2], sys.argv[3:])


if __name__ == "__main__":
    main()
