"""Runs gristmill and its peers on the same load, one after the other, and prints a line for each. See README.md."""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil

HERE = Path(__file__).parent
WINDOW_S = 10


def measure(name: str, python: str, script: str, arguments: list[str]) -> dict[str, Any]:
    """Run one load; times in seconds. CPU is that of all processes that came from it, sampled."""
    env = {**os.environ, "PATH": f"{Path(python).parent}{os.pathsep}{os.environ['PATH']}"}
    cpu: dict[int, float] = {}
    peak = 0
    again = 0.0
    began = time.time()
    with tempfile.TemporaryFile("w+") as out:
        command = [python, str(HERE / script), *arguments]
        process = subprocess.Popen(command, env=env, stdout=out, stderr=subprocess.STDOUT)
        while process.poll() is None:
            sample(cpu)
            if time.time() >= again:
                peak = max(peak, memory())
                again = time.time() + 1.0
            time.sleep(0.1)
        wall = time.time() - began
        sample(cpu)
        out.seek(0)
        output = out.read()
    for child in psutil.Process().children(recursive=True):
        child.kill()
    line = next((x for x in output.splitlines() if x.startswith("FIGURES ")), None)
    if line is None:
        return {"name": name, "failed": output[-800:]}
    figures = json.loads(line.removeprefix("FIGURES "))
    done, first = figures["done"], figures["first"]
    stages = 5 if arguments[0] == "overhead" else 3
    return {
        "name": name,
        "tasks": len(done),
        "wall_s": round(wall, 2),
        "to_first_task_s": round(first - began, 2),
        "work_s": round(done[-1] - first, 2),
        "tasks_per_s": round(len(done) / (done[-1] - first), 2),
        "least_tasks_per_s_after_15_s": least_rate(done, first + 15),
        "cpu_s": round(sum(cpu.values()), 1),
        "driver_us_per_task_and_stage": round(figures.get("driver_cpu_s", 0.0) * 1e6 / len(done) / stages),
        "peak_mb": peak >> 20,
    }


def least_rate(done: list[float], begin: float) -> float | None:
    """The least throughput in any window of so many seconds, from a moment on until the last task; None: it is over."""
    starts = [begin, *(at for at in done if begin <= at <= done[-1] - WINDOW_S)]
    if begin > done[-1] - WINDOW_S:
        return None
    return round(min(sum(start < at <= start + WINDOW_S for at in done) for start in starts) / WINDOW_S, 2)


def memory() -> int:
    """Bytes of all processes that came from this one, with what they share counted once."""
    total = 0
    for child in psutil.Process().children(recursive=True):
        try:
            total += child.memory_full_info().pss
        except psutil.Error:
            continue
    return total


def sample(cpu: dict[int, float]) -> None:
    for child in psutil.Process().children(recursive=True):
        try:
            times = child.cpu_times()
        except psutil.Error:
            continue
        cpu[child.pid] = times.user + times.system


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("load", choices=("overhead", "balance"))
    parser.add_argument("--curator", help="virtual environment of NeMo Curator")
    parser.add_argument("--datatrove", help="virtual environment of datatrove")
    parser.add_argument("--tasks", type=int)
    parser.add_argument("--only", help="names, separated by commas")
    args = parser.parse_args()
    n = str(args.tasks or (2000 if args.load == "overhead" else 400))
    Path("bench-work/ray").mkdir(parents=True, exist_ok=True)
    runs = [
        ("gristmill on Ray", sys.executable, "load_gristmill.py", [args.load, "unfused", n, "ray"]),
        ("gristmill", sys.executable, "load_gristmill.py", [args.load, "unfused", n, "local"]),
    ]
    if args.load == "overhead":
        runs += [
            ("gristmill on Ray, fused", sys.executable, "load_gristmill.py", [args.load, "fused", n, "ray"]),
            ("gristmill, fused", sys.executable, "load_gristmill.py", [args.load, "fused", n, "local"]),
        ]
    runs.append(("Ray Data", sys.executable, "load_ray_data.py", [args.load, "-", n]))
    if args.curator:
        python = f"{args.curator}/bin/python"
        runs += [
            ("Curator on Xenna", python, "load_curator.py", [args.load, "xenna", n]),
            ("Curator on Ray Data", python, "load_curator.py", [args.load, "ray_data", n]),
            ("Curator on actor pools", python, "load_curator.py", [args.load, "actor_pool", n]),
        ]
        if args.load == "balance":
            often = [args.load, "xenna", n, "autoscale_interval_s=10"]
            runs.append(("Curator on Xenna, 10 s", python, "load_curator.py", often))
    if args.datatrove and args.load == "overhead":
        runs.append(("datatrove", f"{args.datatrove}/bin/python", "load_datatrove.py", [args.load, "-", n]))
    runs = [run for run in runs if not args.only or run[0] in args.only.split(",")]
    ctypes.CDLL(None).prctl(36, 1)  # sub-reaper: servers that a peer leaves running stay ours to count and to end
    ours: dict[str, Any] = {}
    for run in runs:
        figures = measure(*run)
        ours = ours or figures
        if "tasks_per_s" in figures and "tasks_per_s" in ours:
            figures["gristmill_is_faster_by"] = round(ours["tasks_per_s"] / figures["tasks_per_s"], 2)
        print(json.dumps(figures), flush=True)


if __name__ == "__main__":
    main()
