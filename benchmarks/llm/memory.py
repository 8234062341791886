"""Memory of a run with more and more requests: it should not grow. Also CPU time per request.

    nice python benchmarks/llm/memory.py [2000 200000]

The server answers at once. Prints the largest private memory of the worker that asks, and of the driver.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import psutil
from common import LatencyServer, command, write_input


class Memory(threading.Thread):
    """Samples the private memory of a process and of its descendants."""

    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self.process = psutil.Process(pid)
        self.driver = self.worker = 0
        self.cpu: dict[int, float] = {}
        self.done = threading.Event()

    def run(self) -> None:
        while not self.done.wait(0.5):
            try:
                self.driver = max(self.driver, self.process.memory_full_info().uss)
                for child in [self.process, *self.process.children(recursive=True)]:
                    self.worker = max(self.worker, child.memory_full_info().uss * (child != self.process))
                    times = child.cpu_times()
                    self.cpu[child.pid] = times.user + times.system
            except psutil.Error:
                continue


def measured(count: int, folder: Path) -> dict[str, Any]:
    server = LatencyServer("--median-ms", "20", "--slow", "0", "--faults", "0.005")
    source = write_input(folder / f"in-{count}", count)
    words = command(source, folder / f"out-{count}", server.base_url, "256", 1 << 20)
    begun = time.monotonic()
    process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    memory = Memory(process.pid)
    memory.start()
    found = json.loads(process.communicate()[0].strip().splitlines()[-1])
    memory.done.set()
    server.stop()
    assert found["kept"] == count
    return {
        "benchmark": "llm memory",
        "requests": count,
        "worker_mb": round(memory.worker / 2**20, 1),
        "driver_mb": round(memory.driver / 2**20, 1),
        "cpu_ms_per_request": round(sum(memory.cpu.values()) / count * 1000, 3),
        "driver_cpu_ms_per_request": round(memory.cpu.get(process.pid, 0) / count * 1000, 3),
        "wall_s": round(time.monotonic() - begun, 1),
    }


def main() -> None:
    folder = Path(tempfile.mkdtemp(prefix="llm-memory-"))
    try:
        for count in [int(word) for word in sys.argv[1:]] or [2_000, 200_000]:
            print(json.dumps(measured(count, folder)), flush=True)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
