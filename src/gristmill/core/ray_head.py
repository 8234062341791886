"""A head node that ends with its owner: ``python ray_head.py OWNER FOLDER OPTIONS TIMEOUT``.

The owner is the process that wants the cluster. The head reports the address of the node, or the reason why there is
none, as one line of JSON. It ends when its standard input closes, the owner is no longer its parent, or a process of
the node ends. Then it kills all processes that came from it, in whatever session, and removes the folder. It is a
sub-reaper, so all of them stay below it. The end of its standard output means that nothing is left.

Not ``ray start --head --block``: that listens on all interfaces, opens a server for Ray's client at a port that must be
free, and starts a monitor for an autoscaler that does not exist; and on SIGTERM it waits for half a minute.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import json
import os
import select
import shutil
import signal
import sys
import threading
import time
from types import FrameType
from typing import Any

POLL_S = 0.2
TERMINATE_S = 8.0
"""How long the node may take to end in order, before all of it is killed."""
KILL_S = 60.0
"""How long killed processes may take to end, before the head gives up."""
_PR_SET_CHILD_SUBREAPER = 36
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def start_node(folder: str, options: dict[str, Any], start_timeout_s: float) -> Any:
    """Return the node when it is up."""
    from ray._private import services
    from ray._private.node import Node
    from ray._private.parameter import RayParams

    class LocalHead(Node):
        """A node that starts no API server without a dashboard: it would do nothing but count usage."""

        def start_api_server(self, *args: Any, **kwargs: Any) -> None:
            if options["include_dashboard"]:
                super().start_api_server(*args, **kwargs)

        def start_ray_processes(self) -> None:
            """Wait until the node has registered: Ray itself gives it only 30 s, too little on a busy machine."""
            super().start_ray_processes()
            until = time.monotonic() + start_timeout_s
            while not self.dead_processes() and time.monotonic() < until:
                try:
                    services.get_node(self.gcs_address, self._node_id)
                    return
                except RuntimeError:  # it has not registered yet
                    time.sleep(POLL_S)

    params = RayParams(temp_dir=folder, min_worker_port=0, max_worker_port=0, **options)
    params.dashboard_agent_listen_port = None  # a free port
    return LocalHead(params, head=True, shutdown_at_exit=False, spawn_reaper=True)


def end_descendants() -> None:
    """Kill all processes below this one and wait for their end. A busy machine may take seconds to end a process."""
    importlib.import_module("ray")  # which brings psutil
    import psutil

    this = psutil.Process()
    until = time.monotonic() + KILL_S
    while (found := this.children(recursive=True)) and time.monotonic() < until:
        for process in found:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(found, timeout=POLL_S)


def remove(folder: str) -> None:
    """Remove a folder, and the link to it if that is what the path names."""
    shutil.rmtree(os.path.realpath(folder), ignore_errors=True)
    if os.path.islink(folder):
        os.unlink(folder)


def _end_with(owner: int, owner_end: int, folder: str, ended: threading.Event) -> None:
    """End this process and all below it when the node has ended, or the owner has closed its end or is gone."""
    while not ended.is_set() and os.getppid() == owner and not select.select([owner_end], [], [], POLL_S)[0]:
        pass
    if not ended.is_set():
        os.kill(os.getpid(), signal.SIGTERM)
        ended.wait(TERMINATE_S)
    end_descendants()
    remove(folder)
    os._exit(0)


def _terminate(signum: int, frame: FrameType | None) -> None:
    for number in _SIGNALS:
        signal.signal(number, lambda *_: None)  # not SIG_IGN, which processes would inherit
    raise SystemExit("it was terminated")


def main(owner: int, folder: str, options: dict[str, Any], start_timeout_s: float) -> None:
    owner_end, report = os.dup(0), os.fdopen(os.dup(1), "w")
    for descriptor, file in ((0, os.devnull), (1, os.path.join(folder, "head.log"))):
        os.dup2(os.open(file, os.O_RDWR | os.O_CREAT), descriptor)
    os.dup2(1, 2)
    for number in _SIGNALS:
        signal.signal(number, _terminate)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)
    ended = threading.Event()
    threading.Thread(target=_end_with, args=(owner, owner_end, folder, ended)).start()
    try:
        node = start_node(folder, options, start_timeout_s)
        print(json.dumps({"address": node.address}), file=report, flush=True)
        try:
            while not node.dead_processes():
                time.sleep(POLL_S)
        finally:
            node.kill_all_processes(check_alive=False, allow_graceful=True)
    except BaseException as error:
        with contextlib.suppress(OSError):  # the owner is gone
            print(json.dumps({"error": f"{type(error).__name__}: {error}"}), file=report, flush=True)
    finally:
        ended.set()


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], json.loads(sys.argv[3]), float(sys.argv[4]))
