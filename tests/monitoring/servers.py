"""A running ``gristmill metrics up`` as tests see it."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_DEADLINE_S = 120


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def wait_for(what: Callable[[], Any], said: str) -> Any:
    """Wait until something is true, and return it. A machine under load may be slow: the limit only ends a hang."""
    until = time.monotonic() + _DEADLINE_S
    while not (found := what()):
        assert time.monotonic() < until, f"waited in vain for {said}"
        time.sleep(0.2)
    return found


@dataclass(frozen=True)
class MetricsUp:
    """A running ``gristmill metrics up``."""

    process: subprocess.Popen[str]
    folder: Path
    runs: Path
    port: int

    def get(self, path: str, **arguments: str) -> Any:
        url = f"http://127.0.0.1:{self.port}/api/v1/{path}?{urllib.parse.urlencode(arguments)}"
        with urllib.request.urlopen(url, timeout=30) as answer:
            return json.load(answer)["data"]

    def query(self, expr: str) -> list[tuple[dict[str, str], float]]:
        """Return the labels and values of an instant query."""
        found = self.get("query", query=expr)["result"]
        return [(x["metric"], float(x["value"][1])) for x in found]

    def last(self, expr: str) -> list[tuple[dict[str, str], float]]:
        """Return the last values of a selector, also if its run has ended."""
        return self.query(f"last_over_time({expr}[10m])")

    def value(self, expr: str) -> float:
        """Return the one value of a selector."""
        (found,) = self.last(expr)
        return found[1]

    def targets(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.get("targets", state="active")["activeTargets"]
        return found

    def stop(self) -> str:
        """Press Ctrl-C. Return what was printed after that."""
        self.process.send_signal(signal.SIGINT)
        out, _ = self.process.communicate(timeout=_DEADLINE_S)
        return out
