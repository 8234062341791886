"""Nodes that tests start with Ray's own tools."""

from __future__ import annotations

import time
from typing import Any

from ray._private import services

_ask = services.get_node


def allow_slow_starts(seconds: float = 300.0) -> None:
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
