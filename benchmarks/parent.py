"""Compares this tree with another checkout of gristmill: the same jobs, one after the other, in each round.

    git worktree add /tmp/parent COMMIT
    python benchmarks/parent.py /tmp/parent WORK [--docs 20k|200k] [--jobs text,fuzzy,exact] [--repeats 5]

WORK is the folder of benchmarks/text_filters with its corpora. Both trees run with this interpreter and its packages.
A ratio above 1 means that this tree takes longer. Ratios are taken within a round; the order changes from round to
round.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "text_filters"))
from measure import Measured, measure  # noqa: E402  # of the benchmark beside this one

JOBS = {
    "text": ("text_filters/gristmill_job.py", ("2", "excluded")),
    "fuzzy": ("dedup/jobs/gristmill_fuzzy.py", ("2", "no-clusters")),
    "exact": ("dedup/jobs/gristmill_exact.py", ("2",)),
}


def run(job: str, tree: Path, work: Path, docs: str) -> Measured:
    script, arguments = JOBS[job]
    out = work.absolute() / "out" / f"parent-{job}"
    shutil.rmtree(out, ignore_errors=True)
    command = [
        sys.executable,
        str(tree / "benchmarks" / script),
        str((work / f"c{docs}").absolute()),
        str(out),
        *arguments,
    ]
    done = measure(job, command, work / "logs" / f"parent-{job}.log", env={"PYTHONPATH": str(tree.absolute() / "src")})
    shutil.rmtree(out, ignore_errors=True)
    if not done.ok:
        sys.exit(f"{job} failed in {tree}: see {work}/logs/parent-{job}.log")
    return done


def spread(values: list[float]) -> str:
    return f"{statistics.median(values):.2f} ({min(values):.2f}-{max(values):.2f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parent", type=Path, help="a checkout of the commit to compare with")
    parser.add_argument("work", type=Path)
    parser.add_argument("--docs", choices=("20k", "200k"), default="200k")
    parser.add_argument("--jobs", default=",".join(JOBS))
    parser.add_argument("--repeats", type=int, default=5)
    args = parser.parse_args()
    trees = [HERE.parent, args.parent]
    print("| job | CPU s, this | CPU s, parent | CPU ratio | wall s, this | wall s, parent | wall ratio | kept |")
    print("|---|---|---|---|---|---|---|---|", flush=True)
    for job in args.jobs.split(","):
        for tree in trees:
            run(job, tree, args.work, args.docs)  # compiles what is not compiled yet
        ours: list[Measured] = []
        theirs: list[Measured] = []
        for round_ in range(args.repeats):
            pair = {tree: run(job, tree, args.work, args.docs) for tree in (trees, trees[::-1])[round_ % 2]}
            ours.append(pair[trees[0]])
            theirs.append(pair[trees[1]])
        pairs = list(zip(ours, theirs, strict=True))
        kept = {str(one.figures["kept"]) for one in (*ours, *theirs)}
        cells = [
            spread([one.cpu_s for one in ours]),
            spread([one.cpu_s for one in theirs]),
            spread([a.cpu_s / b.cpu_s for a, b in pairs]),
            spread([one.wall_s for one in ours]),
            spread([one.wall_s for one in theirs]),
            spread([a.wall_s / b.wall_s for a, b in pairs]),
            " and ".join(sorted(kept)),
        ]
        print(f"| {job} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
