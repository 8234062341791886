"""Everything switched on against everything switched off: live page, metrics, report, stored scores, profile store.

    python benchmarks/monitoring.py CORPUS [--pairs 3] [--blocks 1000] [--task-ms 50]

CORPUS is a folder of JSONL, such as bench-work/c20k. The pipeline reads it in many small blocks, scores two rules,
waits in each block as long as ``--task-ms``, and writes. So a run takes blocks x task / 2 workers, and what watching
costs is seen in its time. With everything on, one browser receives the events of the page, and the metrics are
scraped every second. Runs are processes of their own and alternate. Printed: seconds by the clock, CPU seconds of all
processes of the run, and the ratio of each pair.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from metrics_cost import SCRAPER

BROWSER = """
import sys, urllib.request
for line in sys.stdin:
    if "watch the run at " in line:
        for _ in urllib.request.urlopen(line.split("watch the run at ")[1].strip() + "events"):
            pass
"""


def once(corpus: str, out: str, blocks: int, task_s: float, folder: str) -> None:
    """Run in this process, with everything on if there is a folder for the discovery of metrics."""
    from gristmill import DocumentBatch, LocalExecutor, Pipeline, ProcessingStage
    from gristmill.pipeline.monitoring import MetricsOptions
    from gristmill.text import JsonlReader, JsonlWriter, MeanWordLengthFilter, ScoreFilter, WordCountFilter

    class Wait(ProcessingStage[DocumentBatch, DocumentBatch]):
        def process(self, task: DocumentBatch) -> DocumentBatch:
            time.sleep(task_s)
            return task

    size = sum(path.stat().st_size for path in Path(corpus).iterdir())
    rules = ScoreFilter([WordCountFilter(min_words=5), MeanWordLengthFilter()])
    reader = JsonlReader(corpus, blocksize=size // blocks)
    pipeline = Pipeline("cost", stages=[reader, rules, Wait(), JsonlWriter(out, scores=bool(folder))])
    executor = LocalExecutor({"view": "off", "num_cpus": 2})
    began, cpu = time.perf_counter(), _cpu()
    if folder:
        result = pipeline.run(
            executor, dashboard=True, metrics_port=MetricsOptions(0, folder=folder, linger_s=0), report=True
        )
    else:
        result = pipeline.run(executor, profile_store=False)
    figures = {"wall_s": time.perf_counter() - began, "cpu_s": _cpu() - cpu, "run_s": result.record.wall_s}
    print(json.dumps(figures), flush=True)


def _cpu() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def measured(args: argparse.Namespace, is_on: bool) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as work:
        folder = f"{work}/metrics" if is_on else ""
        command = [sys.executable, __file__, args.corpus, "--once", f"{work}/out", folder]
        command += ["--blocks", str(args.blocks), "--task-ms", str(args.task_ms)]
        env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path])}
        if not is_on:
            done = subprocess.run(command, env=env, stdout=subprocess.PIPE, text=True, check=True)
            return dict(json.loads(done.stdout.splitlines()[-1]))
        os.makedirs(folder)
        scraper = subprocess.Popen([sys.executable, "-c", SCRAPER, folder], stdout=subprocess.DEVNULL)
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        run = subprocess.Popen(command, env=env, **pipes)  # type: ignore[call-overload]
        browser = subprocess.Popen([sys.executable, "-c", BROWSER], stdin=run.stderr)
        output = run.stdout.read()
        if run.wait():
            sys.exit(f"the run failed: {output}")
        scraper.kill()
        browser.kill()
        return dict(json.loads(output.splitlines()[-1]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus")
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--blocks", type=int, default=1000)
    parser.add_argument("--task-ms", type=float, default=50.0)
    parser.add_argument("--once", nargs=2, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.once:
        once(args.corpus, args.once[0], args.blocks, args.task_ms / 1000, args.once[1])
        return
    pairs = [(measured(args, False), measured(args, True)) for _ in range(args.pairs)]
    for figure in ("run_s", "wall_s", "cpu_s"):
        ratios = [on[figure] / off[figure] for off, on in pairs]
        off, on = (statistics.median(pair[place][figure] for pair in pairs) for place in (0, 1))
        each = ", ".join(f"{ratio:.3f}" for ratio in ratios)
        print(f"{figure}: off {off:.2f}, on {on:.2f}, ratio {statistics.median(ratios):.3f} ({each})")


if __name__ == "__main__":
    main()
