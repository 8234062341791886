"""Peak memory for a 1080p video of 30 minutes against one of 3 minutes: fixed stride, encoding, writing.

    python benchmarks/video/memory.py WORK [--length 10 --stride 10] [--copy] [--budget-mb N]

WORK is that of corpus.py. Both videos repeat the same 30 s. The figures are the run's own (its processes, measured by
itself) and the greatest proportional set size of all processes, seen from outside. It exits with 1 if the second takes
more than 10 % more than the first. Without --copy each second of video takes half a second of a core: --length 2
--stride 30 encodes a fifteenth of it. Copied packets come faster than they are written: more tasks of a longer video
wait, up to the budget of data in flight, which --budget-mb sets.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from pathlib import Path

from corpus import LONG, long_files
from measured import measured

CHAINS = Path(__file__).with_name("chains.py")
MOST = 1.10


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("work", type=Path)
    parser.add_argument("--length", type=float, default=10.0)
    parser.add_argument("--stride", type=float, default=10.0)
    parser.add_argument("--copy", action="store_true")
    parser.add_argument("--budget-mb", type=int)
    parser.add_argument("--cpus", type=int, default=1, help="workers: the clips of the short video are one task")
    args = parser.parse_args()
    files = long_files(args.work)
    own: list[int] = []
    outside: list[int] = []
    for name in LONG:
        out = args.work / "memory-out"
        shutil.rmtree(out, ignore_errors=True)
        command = [sys.executable, str(CHAINS), "long", str(files[name]), str(out)]
        command += ["--length", str(args.length), "--stride", str(args.stride), *(["--copy"] if args.copy else [])]
        command += ["--cpus", str(args.cpus)]
        command += ["--budget-mb", str(args.budget_mb)] if args.budget_mb else []
        seen = measured(command, {"OMP_NUM_THREADS": "1"})
        told = json.loads(seen.output.splitlines()[-1])
        own.append(told["memory"])
        outside.append(seen.peak_bytes)
        size = sum(path.stat().st_size for path in (out / "clips").iterdir())
        print(
            f"{name}: {told['kept']} clips, {size / 1e6:,.0f} MB; peak {told['memory'] / 1e6:,.0f} MB by the run's own "
            f"figure, in flight {told['in_flight'] / 1e6:,.0f} of {told['budget'] / 1e6:,.0f} MB, "
            f"PSS {seen.peak_bytes / 1e6:,.0f} MB; "
            f"{seen.wall_s:.0f} s, {seen.cpu_s:.0f} s of CPU time, load {seen.load:.0f}",
            flush=True,
        )
        shutil.rmtree(out)
    shares = own[1] / own[0], outside[1] / outside[0]
    print(f"30 minutes against 3: {shares[0]:.3f} by the run's own figure, {shares[1]:.3f} of PSS")
    if max(shares) > MOST:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
