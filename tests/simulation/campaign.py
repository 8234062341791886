"""Play many random pipelines with faults: ``python -m tests.simulation.campaign --seeds 0:1000``.

A failing seed is printed with the command that replays it. The first ones are shrunk and printed with a trace.
"""

from __future__ import annotations

import argparse
import hashlib
import multiprocessing
import secrets
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path

from tests.simulation.in_flight import in_flight_scenario
from tests.simulation.scenario import random_scenario, show
from tests.simulation.shrink import Draw, Failure, failure_of, report

_CHUNK = 20
_TRACE = 1_000_000
_MOST = 5
_SHRUNK = 5
_SEED_BITS = 62


def failures(
    seeds: Sequence[int], jobs: int = 1, draw: Draw = random_scenario
) -> Iterator[tuple[int, list[tuple[int, Failure]]]]:
    """Play all seeds in lots. For each finished lot, yield its size and the failures by seed."""
    lots = [seeds[i : i + _CHUNK] for i in range(0, len(seeds), _CHUNK)]
    play = partial(play_lot, draw)
    if jobs == 1:
        yield from map(play, lots)
        return
    with multiprocessing.get_context("spawn").Pool(min(jobs, len(lots))) as pool:
        yield from pool.imap_unordered(play, lots)


def play_lot(draw: Draw, seeds: Sequence[int]) -> tuple[int, list[tuple[int, Failure]]]:
    found = ((seed, failure_of(draw(seed))) for seed in seeds)
    return len(seeds), [(seed, failure) for seed, failure in found if failure is not None]


def new_seeds(count: int, drawn_from: str = "") -> range:
    """Return seeds that were almost certainly never played: the same ones for the same text, random ones for none."""
    first = secrets.randbits(_SEED_BITS)
    if drawn_from:
        first = int.from_bytes(hashlib.blake2b(drawn_from.encode(), digest_size=8).digest(), "big") >> 64 - _SEED_BITS
    return range(first, first + count)


def read_seeds(lines: Iterable[str]) -> list[int]:
    """Read seeds, one a line; ``#`` begins a comment.

    >>> read_seeds(["# livelocks", "801893  # two workers", "", "807715"])
    [801893, 807715]
    """
    return [int(text) for line in lines if (text := line.partition("#")[0].strip())]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.simulation.campaign",
        description="Play random pipelines with faults under the scheduler and check everything.",
    )
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--seeds", default="0:1000", metavar="FROM:TO", help="seeds to play (default 0:1000)")
    which.add_argument("--seed", type=int, help="play only this seed")
    which.add_argument("--new", type=int, metavar="N", help="draw and play N new seeds")
    which.add_argument("--from-file", type=Path, metavar="FILE", help="play the seeds in a file, one a line")
    parser.add_argument(
        "--in-flight", action="store_true", help="play pipelines with several units in flight per worker"
    )
    parser.add_argument("--trace", action="store_true", help="with --seed: print all events and commands")
    parser.add_argument("--jobs", type=int, default=1, help="processes to use; 0: one for each CPU (default 1)")
    parser.add_argument("--most", type=int, default=_MOST, help=f"stop after this many failing seeds (default {_MOST})")
    parser.add_argument("--keep-going", action="store_true", help="play all seeds, however many fail")
    parser.add_argument("--no-shrink", action="store_true", help="print failing seeds, but do not shrink them")
    options = parser.parse_args(arguments)
    draw = in_flight_scenario if options.in_flight else random_scenario
    if options.seed is not None:
        return _play_one(options.seed, options.trace, draw)
    seeds: Sequence[int]
    if options.new is not None:
        seeds = new_seeds(options.new)
        print(f"seeds {seeds.start}:{seeds.stop}", flush=True)
    elif options.from_file is not None:
        try:
            seeds = read_seeds(options.from_file.read_text().splitlines())
        except (OSError, ValueError) as error:
            parser.error(f"--from-file {options.from_file}: {error}")
    else:
        try:
            first, last = (int(x) for x in options.seeds.split(":"))
        except ValueError:
            parser.error(f"--seeds must be two numbers like 0:1000, not {options.seeds!r}")
        seeds = range(first, last)
    return _play_many(
        seeds,
        options.jobs or multiprocessing.cpu_count(),
        most=len(seeds) + 1 if options.keep_going else options.most,
        shrunk=0 if options.no_shrink else _SHRUNK,
        draw=draw,
    )


def _play_one(seed: int, trace: bool, draw: Draw) -> int:
    scenario = draw(seed)
    print(show(scenario))
    failure = failure_of(scenario, _TRACE if trace else 0)
    if failure is None:
        print(f"seed {seed}: all is well")
        return 0
    print(*failure.story, report(seed, failure, draw=draw), sep="\n")
    return 1


def _play_many(seeds: Sequence[int], jobs: int, most: int, shrunk: int, draw: Draw) -> int:
    begun = said = time.monotonic()
    done = 0
    failed: list[tuple[int, Failure]] = []
    for n, more in failures(seeds, jobs, draw):
        done += n
        for seed, failure in more[: most - len(failed)]:
            if len(failed) < shrunk:
                print(report(seed, failure, draw=draw), flush=True)
            else:
                print(f"seed {seed} fails: {failure.error[:300]}\nkind: {failure.kind}", flush=True)
            failed.append((seed, failure))
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
