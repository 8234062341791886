"""Kills the driver at random moments and runs again, until the job is done; then compares with an undisturbed run.

    python kills.py INPUT WORK [--kills 20] [--seed 1] [--s3]

With ``--s3`` input and output are on a real S3 server (moto's, started here on loopback).
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from gristmill.storage import Folder

JOB = Path(__file__).with_name("job.py")


@contextmanager
def s3_server() -> Iterator[str]:
    """A server of its own process; its endpoint."""
    code = (
        "from moto.server import ThreadedMotoServer; import time\n"
        "s = ThreadedMotoServer('127.0.0.1', 0, verbose=False); s.start()\n"
        "print('%s:%d' % s.get_host_and_port(), flush=True); time.sleep(1e6)"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    try:
        assert process.stdout is not None
        yield f"http://{process.stdout.readline().strip()}"
    finally:
        process.kill()


def contents(folder: Folder) -> dict[str, str]:
    """Hashes of all that a run writes for people, by name."""
    found = {}
    for sub in ("", "excluded", "quarantine"):
        for name in folder.names(sub):
            path = f"{sub}/{name}" if sub else name
            found[path] = hashlib.blake2b(folder.read(path)).hexdigest()
    return found


def play(source: str, work: str, kills: int, seed: int, options: dict[str, Any], extra: list[str]) -> int:
    def run(output: str) -> dict[str, Any]:
        done = subprocess.run(
            [sys.executable, JOB, source, output, *extra], capture_output=True, text=True, check=False
        )
        if done.returncode:
            sys.exit(done.stderr)
        found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return found

    whole = run(f"{work}/whole")
    print(f"undisturbed: {json.dumps(whole)}", flush=True)
    expected = contents(Folder(f"{work}/whole", options)), ledger(f"{work}/whole", options)
    rng = random.Random(seed)
    killed, output, equal = 0, 1, 0
    while killed < kills:
        command = [sys.executable, JOB, source, f"{work}/killed-{output}", *extra]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(rng.uniform(0.3, 1.2 + whole["wall_s"] * 0.7))
        process.send_signal(signal.SIGKILL)
        if process.wait() == -signal.SIGKILL:
            killed += 1
            continue
        # It had come to its end: the next kills are for another output.
        equal += (contents(Folder(command[3], options)), ledger(command[3], options)) == expected
        output += 1
    last = run(f"{work}/killed-{output}")
    print(f"the last run: {json.dumps(last)}")
    final = Folder(f"{work}/killed-{output}", options)
    found = contents(final), ledger(final.url, options)
    equal += found == expected
    for name in sorted({*found[0], *expected[0]}):
        if found[0].get(name) != expected[0].get(name):
            print(f"differs: {name}")
    print(f"{killed} kills of {output} jobs; {equal} of {output} outputs and ledgers are those of the undisturbed run")
    return 0 if equal == output else 1


def ledger(path: str, options: dict[str, Any]) -> Any:
    return json.loads(Folder(path, options).read("_gristmill/ledger.json"))["total"]


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("input")
    parser.add_argument("work")
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--s3", action="store_true")
    parser.add_argument("--blocksize", default="1MB")
    args = parser.parse_args()
    extra = ["--blocksize", args.blocksize]
    if not args.s3:
        shutil.rmtree(args.work, ignore_errors=True)
        return play(args.input, args.work, args.kills, args.seed, {}, extra)
    with s3_server() as endpoint:
        options = {"endpoint_url": endpoint, "key": "test", "secret": "test"}
        bucket = Folder("s3://corpus/in", options)
        bucket.fs.mkdir("corpus")
        for path in sorted(Path(args.input).glob("*.jsonl")):
            bucket.write(path.name, path.read_bytes())
        source, work = "s3://corpus/in/", "s3://corpus/work"
        return play(source, work, args.kills, args.seed, options, [*extra, "--endpoint", endpoint])


if __name__ == "__main__":
    sys.exit(main())
