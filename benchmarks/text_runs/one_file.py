"""One large file, plain and compressed: are both workers busy, and is memory bounded?

    python one_file.py CORPUS WORK [--gb 2]

CORPUS is a folder of JSON lines that are repeated until the file is large enough.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
from pathlib import Path

JOB = Path(__file__).with_name("job.py")


def make(corpus: Path, path: Path, size: int) -> None:
    parts = sorted(corpus.glob("*.jsonl"))
    with path.open("wb") as out:
        while out.tell() < size:
            for part in parts:
                with part.open("rb") as file:
                    shutil.copyfileobj(file, out, 1 << 20)
                if out.tell() >= size:
                    break


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("corpus", type=Path)
    parser.add_argument("work", type=Path)
    parser.add_argument("--gb", type=float, default=2)
    args = parser.parse_args()
    args.work.mkdir(parents=True, exist_ok=True)
    print("| file | GB | documents | kept | blocks | wall s | busy share of both workers | peak memory MB |")
    print("|---|---|---|---|---|---|---|---|")
    for share in (0.1, 1.0):
        plain = args.work / f"one-{share}.jsonl"
        make(args.corpus, plain, int(args.gb * share * 1e9))
        report(plain, args.work)
        subprocess.run(["gzip", "-1", "-f", str(plain)], check=True)
        report(plain.with_suffix(".jsonl.gz"), args.work)


def report(path: Path, work: Path) -> None:
    output = work / "out"
    shutil.rmtree(output, ignore_errors=True)
    done = subprocess.run([sys.executable, JOB, str(path), str(output)], capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(done.stderr)
    found = json.loads(done.stdout.splitlines()[-1])
    cells = (path.name, f"{path.stat().st_size / 1e9:.2f}", found["read"], found["kept"], found["blocks"])
    print("|", " | ".join(map(str, (*cells, found["wall_s"], found["busy"], found["peak_mb"]))), "|", flush=True)


if __name__ == "__main__":
    main()
