"""The cost of metrics for the driver: CPU of runs with `metrics_port` and a scrape every second, against runs without.

    python benchmarks/metrics_cost.py [--seconds 30] [--pairs 3] [--stages 5] [--task-ms 5]
    python benchmarks/metrics_cost.py --parts [--seconds 30] [--stages 5] [--task-ms 500]

Tasks of 5 ms, or of another length, as many as keep two workers busy for so long. Each run is in a process of its own,
and runs with and without metrics alternate. The scraper is another process, so its CPU time does not count. Printed:
CPU seconds of the driver after the first 6 s, and what metrics add per second and step. CPU time, not time on the
clock: other work on the machine matters little. `--parts` prints what each part takes in one run: exact where the
difference of two runs is not.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

WARM_UP_S = 6.0
"""Costs that occur once fall into this time, which is not counted."""

SCRAPER = """
import glob, json, sys, time, urllib.request
scrapes = 0
while True:
    at = time.monotonic()
    for name in glob.glob(sys.argv[1] + "/run-*.json"):
        try:
            address = json.load(open(name))[0]["targets"][0]
            request = urllib.request.Request(f"http://{address}/metrics", headers={
                "Accept": "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5",
                "Accept-Encoding": "gzip"})
            urllib.request.urlopen(request, timeout=5).read()
            scrapes += 1
            print(scrapes, flush=True)
        except (OSError, ValueError):
            pass
    time.sleep(max(0.0, 1.0 - (time.monotonic() - at)))
"""


def once(stages: int, tasks: int, task_s: float, folder: str) -> None:
    """Run in this process; print the driver's CPU seconds per second and step."""
    from engine import Pass, Source

    from gristmill.backends.local import LocalExecutor
    from gristmill.pipeline import Pipeline
    from gristmill.pipeline.monitoring import MetricsOptions

    source = Source(tasks)
    pipeline = Pipeline("cost", stages=[Pass(f"sleep {i}", task_s) for i in range(stages)])
    options = MetricsOptions(0, folder=folder, linger_s=0) if folder else None
    executor = LocalExecutor({"view": "off", "num_cpus": 2})
    first: list[float] = []
    timer = threading.Timer(WARM_UP_S, lambda: first.extend((time.process_time(), time.perf_counter())))
    timer.start()
    result = pipeline.run(executor, source, keep_outputs=False, fuse=False, metrics_port=options)
    cpu = time.process_time() - first[0]
    seconds = time.perf_counter() - first[1]
    print(json.dumps({"cpu_us": cpu * 1e6, "wall_s": seconds, "tasks": result.record.steps[-1].stages[0].tasks_done}))


def measured(stages: int, tasks: int, task_s: float, folder: str) -> dict[str, float]:
    command = [sys.executable, __file__, "--once", str(stages), str(tasks), str(task_s), folder]
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parent)}
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
    figures: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return figures


def timed(owner: Any, name: str, label: str, spent: Counter[str]) -> None:
    """Replace a function by one that adds up its CPU time."""
    function = getattr(owner, name)

    def replaced(*args: Any, **named: Any) -> Any:
        began = time.thread_time()
        try:
            return function(*args, **named)
        finally:
            spent[label] += time.thread_time() - began

    setattr(owner, name, replaced)


def parts(stages: int, tasks: int, task_s: float) -> None:
    """Print the CPU microseconds per second and step of each part, in one run."""
    import gristmill.backends.engine.moment as moment
    from gristmill.metrics.endpoint import MetricsEndpoint
    from gristmill.metrics.history import History
    from gristmill.pipeline.metrics_endpoint import MetricsAttachment

    spent: Counter[str] = Counter()
    timed(moment, "moment_of", "moments, twice a second", spent)
    timed(History, "update", "history", spent)
    timed(MetricsAttachment, "update", "attachment", spent)
    timed(MetricsEndpoint, "_advance", "answers, one a second", spent)
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        scraper = subprocess.Popen([sys.executable, "-c", SCRAPER, folder], stdout=subprocess.DEVNULL)
        once(stages, tasks, task_s, folder)
        scraper.kill()
    seconds = time.perf_counter() - began
    figures = {label: round(cpu / seconds / stages * 1e6, 1) for label, cpu in spent.items()}
    print(json.dumps({**figures, "together": round(sum(figures.values()), 1)}))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--stages", type=int, default=5)
    parser.add_argument("--task-ms", type=float, default=5.0, help="longer: less other work, so less noise")
    parser.add_argument("--parts", action="store_true", help="what each part takes, in one run")
    parser.add_argument("--once", nargs=4, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.once:
        once(int(args.once[0]), int(args.once[1]), float(args.once[2]), args.once[3])
        return
    task_s = args.task_ms / 1000
    tasks = max(2, int(args.seconds * 2 / (task_s + 0.0005) / args.stages))
    if args.parts:
        parts(args.stages, tasks, task_s)
        return
    added = []
    for _ in range(args.pairs):
        off = measured(args.stages, tasks, task_s, "")
        with tempfile.TemporaryDirectory() as folder:
            scraper = subprocess.Popen([sys.executable, "-c", SCRAPER, folder], stdout=subprocess.PIPE, text=True)
            on = measured(args.stages, tasks, task_s, folder)
            scraper.terminate()
            scrapes = len(scraper.communicate()[0].split())
        # The same work: what metrics add is the difference, per second of the run with them.
        more = (on["cpu_us"] - off["cpu_us"]) / on["wall_s"] / args.stages
        added.append(more)
        print(
            json.dumps(
                {
                    "tasks": tasks,
                    "stages": args.stages,
                    "off_cpu_s": round(off["cpu_us"] / 1e6, 3),
                    "off_wall_s": round(off["wall_s"], 1),
                    "on_cpu_s": round(on["cpu_us"] / 1e6, 3),
                    "on_wall_s": round(on["wall_s"], 1),
                    "scrapes": scrapes,
                    "added_us_per_second_and_step": round(more, 1),
                }
            ),
            flush=True,
        )
    print(json.dumps({"added_us_per_second_and_step, median": round(statistics.median(added), 1)}))


if __name__ == "__main__":
    main()
