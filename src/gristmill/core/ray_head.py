"""A head node in the foreground: ``python ray_head.py FOLDER OPTIONS TIMEOUT``.

Not ``ray start --head --block``: that always opens a server for Ray's client, at a port that must be free, and starts a
monitor for an autoscaler that does not exist; and on SIGTERM it waits for half a minute.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
import threading
import time
from typing import Any

ADDRESS = "address"
"""The file with the address of the node, written when the node is up."""
_PR_SET_PDEATHSIG = 1
_POLL_S = 0.2


def serve(folder: str, options: dict[str, Any], start_timeout_s: float) -> int:
    """Start the node, write its address, and stay until SIGTERM, or until one of its processes ends."""
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
                    time.sleep(_POLL_S)

    params = RayParams(temp_dir=folder, min_worker_port=0, max_worker_port=0, **options)
    params.dashboard_agent_listen_port = None  # a free port
    node = LocalHead(params, head=True, shutdown_at_exit=False, spawn_reaper=True)
    terminated = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: terminated.set())
    address = os.path.join(folder, ADDRESS)
    with open(f"{address}.part", "w") as file:
        file.write(node.address)
    os.rename(f"{address}.part", address)
    dead: list[Any] = []
    while not dead and not terminated.wait(0.5):
        dead = node.dead_processes()
    for kind, process in dead:
        print(f"{kind} ended with {process.returncode}", flush=True)
    node.kill_all_processes(check_alive=False, allow_graceful=True)
    return 1 if dead else 0


if __name__ == "__main__":
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    sys.exit(serve(sys.argv[1], json.loads(sys.argv[2]), float(sys.argv[3])))
