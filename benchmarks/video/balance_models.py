"""Four GPU models of unequal speed on a simulated cluster of 8 nodes with 8 GPUs: how near the balancer is to the best.

    python benchmarks/video/balance_models.py [--seeds 5] [--inputs 4800]

The load is examples/loads/video-models.json: TransNetV2 at 2 clips/s, Cosmos-Embed1 at 4, captions at 0.5 and their
enhancement at 1 clip/s of a worker, with a fifth of a GPU for the first two and a whole one for the others. The share
is that of the best steady throughput, setups and filling not counted. It exits with 1 if one is 0.95 or less.
"""

from __future__ import annotations

import argparse
import random
import time
from dataclasses import replace
from pathlib import Path
from statistics import fmean

from gristmill.metrics.chart import means
from gristmill.scheduling.simulator import read_loads, simulate

LOAD = Path(__file__).parents[2] / "examples/loads/video-models.json"
LEAST = 0.95


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first-seed", type=int, default=random.randrange(1_000_000))
    parser.add_argument("--inputs", type=int, help="videos; each becomes 30 clips")
    args = parser.parse_args()
    (load,) = read_loads(str(LOAD))
    if args.inputs:
        load = replace(load, inputs=args.inputs)
    shares = []
    for seed in range(args.first_seed, args.first_seed + args.seeds):
        began = time.process_time()
        result = simulate(load, seed=seed)
        shares.append(result.share_of_optimum)
        middle = {s.name: means(s.timeline, result.makespan_s, 10)[5] for s in result.stages}
        workers = ", ".join(f"{name} {count:.0f}" for name, count in middle.items())
        clips = next(s.tasks_done for s in result.stages if s.name == "write")
        queue = result.peak_queue_bytes / result.budget_bytes
        print(
            f"seed {seed}: {result.share_of_optimum:.3f} of the optimum; {clips:,} clips in {result.makespan_s:,.0f} "
            f"s, {clips / result.makespan_s:.1f}/s, peak queue {queue:.1%} of the "
            f"budget; workers in the middle: {workers} ({time.process_time() - began:.0f} s of CPU time)",
            flush=True,
        )
    print(f"least {min(shares):.3f}, mean {fmean(shares):.3f}")
    if min(shares) <= LEAST:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
