"""A real server in another process, for all tests of language models."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

SERVER = Path(__file__).parents[2] / "benchmarks/llm/latency_server.py"


class RunningLatencyServer:
    """The latency server of the benchmarks, in a process of its own."""

    def __init__(self, *options: str) -> None:
        command = [sys.executable, str(SERVER), *options]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        self.port = int(self.process.stdout.readline())
        self.base_url = f"http://127.0.0.1:{self.port}/v1"

    def log(self) -> dict[str, Any]:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/log") as response:
            found: dict[str, Any] = json.load(response)
            return found

    def stop(self) -> None:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.close()
        self.process.wait(20)
        self.process.stdout.close()


QUICK = ("--median-ms", "2", "--slow", "0", "--faults", "0", "--retry-after", "0.01")


@pytest.fixture(scope="session")
def quick_server() -> Iterator[RunningLatencyServer]:
    """A server without faults that answers at once. Tests that count its calls take a difference."""
    server = RunningLatencyServer(*QUICK)
    yield server
    server.stop()


@pytest.fixture
def start_server() -> Iterator[Callable[..., RunningLatencyServer]]:
    """Start a server with options beside those of `quick_server`, which they replace."""
    started: list[RunningLatencyServer] = []

    def start(*options: str) -> RunningLatencyServer:
        started.append(RunningLatencyServer(*QUICK, *options))
        return started[-1]

    yield start
    for server in started:
        server.stop()
