"""Many seeds of random pipelines with faults: ``python -m gristmill.scheduling.simulator.campaign --seeds 0:1000``.

A seed that fails is printed with the command that replays it and a shrunk trace.
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import time
from collections.abc import Iterator, Sequence

from gristmill.scheduling.simulator.scenario import random_scenario, show
from gristmill.scheduling.simulator.shrink import Failure, failure_of, report

_CHUNK = 20
_TRACE = 1_000_000


def failures(seeds: range, jobs: int = 1) -> Iterator[tuple[int, list[tuple[int, Failure]]]]:
    """Play all seeds; for each lot of them that is done, how many they were and which failed how."""
    lots = [seeds[i : i + _CHUNK] for i in range(0, len(seeds), _CHUNK)]
    if jobs == 1:
        yield from map(play_lot, lots)
        return
    with multiprocessing.get_context("spawn").Pool(jobs) as pool:
        yield from pool.imap_unordered(play_lot, lots)


def play_lot(seeds: range) -> tuple[int, list[tuple[int, Failure]]]:
    found = ((seed, failure_of(random_scenario(seed))) for seed in seeds)
    return len(seeds), [(seed, failure) for seed, failure in found if failure is not None]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m gristmill.scheduling.simulator.campaign",
        description="Play random pipelines with faults under the scheduler, everything checked.",
    )
    parser.add_argument("--seeds", default="0:1000", metavar="FROM:TO", help="which seeds to play (default 0:1000)")
    parser.add_argument("--seed", type=int, help="play this one only")
    parser.add_argument("--trace", action="store_true", help="with --seed: tell all that is heard and said")
    parser.add_argument("--jobs", type=int, default=1, help="processes to use; 0: one for each CPU")
    parser.add_argument("--keep-going", action="store_true", help="do not stop after five failing seeds")
    parser.add_argument("--no-shrink", action="store_true", help="stop at the first failure and only name it")
    options = parser.parse_args(arguments)
    if options.seed is not None:
        return _play_one(options.seed, options.trace)
    try:
        first, last = (int(x) for x in options.seeds.split(":"))
    except ValueError:
        parser.error(f"--seeds must be two numbers like 0:1000, not {options.seeds!r}")
    return _play_many(
        range(first, last),
        options.jobs or multiprocessing.cpu_count(),
        most=1 if options.no_shrink else 1 << 30 if options.keep_going else 5,
        shrink=not options.no_shrink,
    )


def _play_one(seed: int, trace: bool) -> int:
    scenario = random_scenario(seed)
    print(show(scenario))
    failure = failure_of(scenario, _TRACE if trace else 0)
    if failure is None:
        print(f"seed {seed}: all is well")
        return 0
    print(*failure.story, report(seed, failure), sep="\n")
    return 1


def _play_many(seeds: range, jobs: int, most: int, shrink: bool) -> int:
    begun = said = time.monotonic()
    done = 0
    failed: list[tuple[int, Failure]] = []
    for n, more in failures(seeds, jobs):
        done += n
        for seed, failure in more[: most - len(failed)]:
            print(report(seed, failure) if shrink else f"seed {seed} fails: {failure.error}", flush=True)
            if not shrink:
                print(f"kind: {failure.kind}")
        failed += more
        if time.monotonic() - said > 10:
            said = time.monotonic()
            print(
                f"{done} of {len(seeds)} seeds, {done / (said - begun):.0f} a second, {len(failed)} failed", flush=True
            )
        if len(failed) >= most:
            break
    took = time.monotonic() - begun
    print(f"{done} seeds in {took:.0f} s ({done / max(took, 0.001):.0f} a second): {len(failed) or 'none'} failed")
    if failed:
        print("failing seeds:", *sorted(seed for seed, _ in failed))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
