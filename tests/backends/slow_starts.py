"""Nodes that tests start with Ray's own tools."""

from __future__ import annotations

import fcntl
import tempfile
import time
from pathlib import Path
from typing import Any

from ray._private import services

ATTEMPTS = 3
_ask = services.get_node


def allow_slow_starts(seconds: float = 120.0) -> None:
    """Let nodes of this process take longer to register than Ray's 30 s, which cannot be set."""

    def wait(*arguments: Any) -> Any:
        until = time.monotonic() + seconds
        while True:
            try:
                return _ask(*arguments)
            except RuntimeError:  # it has not registered yet
                if time.monotonic() > until:
                    raise
                time.sleep(0.2)

    services.get_node = wait


def start_ray(**options: Any) -> None:
    """Start Ray on this machine and connect to it, in one process after the other.

    Ray ends a node whose agents are not up within 15 s, which cannot be set either. Nodes that start at the same time
    on few CPUs take longer. On a busy machine a second attempt may succeed, as in `HeadNode`.
    """
    import ray

    allow_slow_starts()
    with open(Path(tempfile.gettempdir(), "gristmill-tests-start-ray.lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for attempt in range(ATTEMPTS):
            try:
                ray.init(address="local", log_to_driver=False, **options)
                return
            except Exception:
                ray.shutdown()
                if attempt == ATTEMPTS - 1:
                    raise
