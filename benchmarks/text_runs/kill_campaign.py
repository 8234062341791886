"""Kills drivers, supervisors and workers at random moments, resumes, and compares with undisturbed runs.

    python kill_campaign.py INPUT WORK [--kills 50] [--seed N]

Two pipelines take turns: Gopher's rules (``filter``), and the same with fuzzy deduplication (``fuzzy``). A kill is a
SIGKILL to the driver, the supervisor, both at once, or one worker. After the death of a driver or supervisor the same
command runs again; a worker's death must not stop the run. A finished output must have the bytes and the ledger of the
undisturbed run, and no temporary file may be left in any of its folders. The seed is drawn and printed.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import psutil

JOB = Path(__file__).with_name("job.py")
VICTIMS = ("driver", "supervisor", "driver and supervisor", "worker")
PIPELINES = ("filter", "fuzzy")


def command(pipeline: str, source: str, output: Path) -> list[str]:
    return [sys.executable, str(JOB), source, str(output), "--blocksize", "1MB", "--pipeline", pipeline]


def contents(output: Path) -> dict[str, str]:
    """Hashes of everything that a run writes for people, by name, and the totals of its ledger."""
    found = {
        str(path.relative_to(output)): hashlib.blake2b(path.read_bytes()).hexdigest()
        for path in sorted(output.rglob("*"))
        if path.is_file() and "_gristmill" not in path.relative_to(output).parts
    }
    found["the ledger"] = json.dumps(json.loads((output / "_gristmill/ledger.json").read_text())["total"])
    return found


def temporary(output: Path) -> list[str]:
    return [str(path.relative_to(output)) for path in output.rglob("*") if ".tmp" in path.name]


def victims(driver: psutil.Process, kind: str, rng: random.Random) -> list[psutil.Process]:
    """The processes to kill; none if there are none of that kind now."""
    supervisors = driver.children()
    workers = [worker for supervisor in supervisors for worker in supervisor.children()]
    if kind == "worker":
        return [rng.choice(workers)] if workers else []
    if kind != "driver" and not supervisors:
        return []
    return [*([driver] if "driver" in kind else []), *(supervisors if "supervisor" in kind else [])]


def disturb(process: subprocess.Popen[bytes], kind: str, after_s: float, rng: random.Random) -> bool:
    """Kill after a while, as soon as there is something of that kind; whether something was hit."""
    time.sleep(after_s)
    try:
        driver = psutil.Process(process.pid)
        while not (found := victims(driver, kind, rng)) and process.poll() is None:
            time.sleep(0.002)
        for victim in found:
            victim.send_signal(signal.SIGKILL)
    except psutil.Error:
        return False
    return bool(found)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("input")
    parser.add_argument("work", type=Path)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=int.from_bytes(os.urandom(4), "big"))
    args = parser.parse_args()
    print(f"seed {args.seed}", flush=True)
    rng = random.Random(args.seed)
    shutil.rmtree(args.work, ignore_errors=True)
    expected: dict[str, dict[str, str]] = {}
    seconds: dict[str, float] = {}
    for pipeline in PIPELINES:
        began = time.monotonic()
        subprocess.run(command(pipeline, args.input, args.work / pipeline), check=True)
        seconds[pipeline] = time.monotonic() - began
        expected[pipeline] = contents(args.work / pipeline)
    hits: Counter[str] = Counter()
    outputs: Counter[str] = Counter()
    problems = 0
    while hits.total() < args.kills:
        pipeline = PIPELINES[outputs.total() % len(PIPELINES)]
        output = args.work / f"{pipeline}-{outputs.total()}"
        outputs[pipeline] += 1
        log = args.work / "log"
        wanted = rng.randint(1, 4)  # kills of this output, as far as its runs last long enough
        while True:
            with log.open("wb") as out:
                process = subprocess.Popen(command(pipeline, args.input, output), stdout=out, stderr=out)
            kind = ""
            if wanted > 0 and hits.total() < args.kills:
                wanted -= 1
                choice = min(VICTIMS, key=lambda victim: (hits[f"{victim}, {pipeline}"], rng.random()))
                if disturb(process, choice, rng.uniform(0.2, seconds[pipeline]), rng):
                    kind = choice
                    hits[f"{choice}, {pipeline}"] += 1
            code = process.wait()
            if code == 0:
                break
            if kind in ("", "worker"):
                print(f"{output}: exit {code} after the kill of {kind or 'no process'}:\n{log.read_text()[-2000:]}")
                problems += 1
                break
        if not code:
            left = temporary(output)
            found = contents(output)
            names = sorted({*found, *expected[pipeline]})
            differing = [name for name in names if found.get(name) != expected[pipeline].get(name)]
            for name in [*(f"left: {name}" for name in left), *(f"differs: {name}" for name in differing)]:
                print(f"{output}: {name}", flush=True)
            problems += bool(left or differing)
        if not problems:
            shutil.rmtree(output)
    for name, count in sorted(hits.items()):
        print(f"{count:4} kills of {name}")
    print(f"{hits.total()} kills, {outputs.total()} outputs ({dict(outputs)}), {problems} with a problem")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
