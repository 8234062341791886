"""What the benchmarks of language models share: the latency server as a process, inputs, and a run as a process."""

from __future__ import annotations

import hashlib
import json
import os
import resource
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
RUN = """
import json, os, resource, sys, time
from gristmill import LocalExecutor, Pipeline
from gristmill.text import Endpoint, JsonlReader, JsonlWriter, LLMStage

source, output, url, in_flight, blocksize = sys.argv[1:6]
concurrency = "auto" if in_flight == "auto" else int(in_flight)
model = Endpoint("m", url, concurrency=concurrency, max_concurrency=256, backoff_s=0.5)
stage = LLMStage(model, "Say something about {{ text }}", parameters={"max_tokens": 64, "seed": 1})
stages = [JsonlReader(source, blocksize=int(blocksize)), stage, JsonlWriter(output)]
begun = time.monotonic()
result = Pipeline("llm", stages=stages).run(LocalExecutor({"view": "off", "num_cpus": 2}))
total = result.ledger.total()
counters = {name: n for (_, name), n in total.counters.items()}
notes = {name: values for (_, name), values in total.notes.items()}
driver = resource.getrusage(resource.RUSAGE_SELF)
print(json.dumps({
    "wall_s": round(time.monotonic() - begun, 2), "kept": total.kept, "errored": sum(total.errored.values()),
    "driver_cpu_s": round(driver.ru_utime + driver.ru_stime, 2), "counters": counters, "notes": notes,
    "driver_mb": round(driver.ru_maxrss / 1024), "summary": result.summary(),
}))
"""


class LatencyServer:
    """The latency server in a process of its own."""

    def __init__(self, *options: str) -> None:
        command = [sys.executable, str(HERE / "latency_server.py"), *options]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        self.port = int(self.process.stdout.readline())
        self.base_url = f"http://127.0.0.1:{self.port}/v1"

    def get(self, path: str) -> Any:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/{path}") as response:
            return json.load(response)

    def stop(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(20)


def write_input(folder: Path, count: int) -> Path:
    """Write documents, in several files."""
    folder.mkdir(parents=True)
    for start in range(0, count, 20_000):
        with open(folder / f"{start:08d}.jsonl", "w") as file:
            for n in range(start, min(count, start + 20_000)):
                file.write(json.dumps({"text": f"document number {n}", "n": n}) + "\n")
    return folder


def command(source: Path, output: Path, url: str, in_flight: str, blocksize: int = 1 << 16) -> list[str]:
    """Return the command of a run."""
    return [sys.executable, "-c", RUN, str(source), str(output), url, in_flight, str(blocksize)]


def measured(words: list[str]) -> dict[str, Any]:
    """Run a command that prints JSON on its last line. Add the CPU time of all its processes, and the load."""
    before, load = resource.getrusage(resource.RUSAGE_CHILDREN), os.getloadavg()[0]
    begun = time.monotonic()
    ran = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    found: dict[str, Any] = json.loads(ran.stdout.strip().splitlines()[-1])
    wall = round(time.monotonic() - begun, 2)
    return {**found, "all_cpu_s": round(cpu, 2), "process_wall_s": wall, "load_before": round(load, 1)}


def digest(output: Path) -> str:
    """Return a hash of the files of an output, without those of the run itself."""
    total = hashlib.blake2b(digest_size=16)
    for path in sorted(output.rglob("*")):
        if path.is_file() and "_gristmill" not in path.parts:
            total.update(str(path.relative_to(output)).encode() + path.read_bytes())
    return total.hexdigest()


def share_of_capacity(server: LatencyServer, in_flight: int, first: int, last: int) -> dict[str, float]:
    """Compare the answers per second between two answers with what the server could give.

    The capacity is the number in flight divided by the mean time of a call in the server's log. Failed calls take time
    too, so it is multiplied by the share of calls that were answered.
    """
    times, log = server.get("times"), server.get("log")
    rate = (last - first) / (times[last - 1] - times[first - 1])
    capacity = in_flight / log["mean_s"] * log["answers"] / log["calls"]
    return {
        "answers_per_s": round(rate, 1),
        "capacity_per_s": round(capacity, 1),
        "share_of_capacity": round(rate / capacity, 4),
        "mean_ms": round(log["mean_s"] * 1000, 1),
    }
