"""Stored scores and `gristmill what-if` against real runs.

    python benchmarks/text_filters/corpus.py bench-work             # once: c200k and c20k
    python benchmarks/what_if.py bench-work --docs 20k --questions 10
    python benchmarks/what_if.py bench-work --docs 200k --questions 2
    python benchmarks/what_if.py bench-work --docs 20k --cost 7     # what storing scores costs

Each question draws one to three thresholds of Gopher's rules and values from the scores of the run. The funnel of
`what-if` must equal that of a run with those thresholds: the script fails if one number differs, or if a document is
undecided. CPU seconds are those of all processes. The seed is printed; ``--seed`` draws the same questions again.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from gristmill.scores.stored import StoredScores

RECIPES = ("gopher-quality", "gopher-repetition")
JOB = """
import json, sys
from gristmill.backends.local import LocalExecutor
from gristmill.pipeline import Pipeline
from gristmill.stages.text.io import JsonlReader, JsonlWriter
from gristmill.stages.text.recipes import recipe

source, out, scores, changes = sys.argv[1:]
sets = json.loads(changes)
stages = [recipe(name, set=sets.get(name)) for name in ("gopher-quality", "gopher-repetition")]
pipeline = Pipeline("benchmark", stages=[JsonlReader(source), *stages, JsonlWriter(out, scores=scores == "scores")])
result = pipeline.run(LocalExecutor({"num_cpus": 2.0, "view": "off"}))
"""


def cpu_of(command: list[str]) -> tuple[float, str]:
    """Run a command; return the CPU seconds of its processes, and what it printed."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, done.stdout


def run(source: Path, out: Path, scores: bool, changes: dict[str, Any]) -> float:
    shutil.rmtree(out, ignore_errors=True)
    words = "scores" if scores else "no-scores"
    return cpu_of([sys.executable, "-c", JOB, str(source), str(out), words, json.dumps(changes)])[0]


def funnel_of(out: Path) -> dict[str, Any]:
    """The counts of a run: kept, and dropped by stage and reason."""
    total = json.loads((out / "_gristmill" / "ledger.json").read_text())["total"]
    return {"kept": total["kept"], "dropped": sorted(total["dropped"])}


def drawn(scores: StoredScores, rng: random.Random) -> dict[str, dict[str, float]]:
    """Other values of one to three thresholds, by recipe and rule: quantiles of the scores that the run has stored."""
    rules = [rule for rule in scores.rules if rule.thresholds]
    found: dict[str, dict[str, float]] = {}
    for rule in rng.sample(rules, rng.randint(1, 3)):
        threshold = rng.choice(rule.thresholds)
        stored = scores.distributions([rule])[rule]
        if rng.random() < 0.5:  # documents come back
            end = stored.least if threshold.side == "least" else stored.most
            value = threshold.value + rng.random() * (end - threshold.value)
        else:
            value = stored.quantile(rng.choice([0.005, 0.02, 0.1, 0.5, 0.9, 0.98, 0.995]))
            value = value if rng.random() < 0.5 else (value + threshold.value) / 2
        if isinstance(rule.arguments.get(threshold.argument), int):
            value = round(value)
        found.setdefault(rule.stage_name, {})[f"{rule.name}.{threshold.argument}"] = value
    return found


def questions(source: Path, work: Path, count: int, seed: int) -> bool:
    rng = random.Random(seed)
    out, again = work / "run", work / "again"
    first = run(source, out, True, {})
    scores = StoredScores(str(out))
    print(f"seed {seed}; the run took {first:.2f} s of CPU", flush=True)
    is_right, shares = True, []
    while count:
        changes = drawn(scores, rng)
        names = [f"{stage}.{name}={value!r}" for stage, some in changes.items() for name, value in some.items()]
        command = [sys.executable, "-m", "gristmill", "what-if", str(out), *names, "--json"]
        began = time.monotonic()
        try:
            asked, printed = cpu_of(command)
            wall = time.monotonic() - began
            rerun = run(source, again, False, changes)
        except subprocess.CalledProcessError as error:
            if "kept none" in (error.stderr or ""):  # of no use as a question: draw another one
                continue
            print(error.stderr, file=sys.stderr)
            raise
        answer = json.loads(printed)
        wanted = funnel_of(again)
        found = {"kept": answer["after"]["kept"], "dropped": sorted(answer["after"]["dropped"])}
        same = found == wanted and not answer["undecided"]
        is_right = is_right and same
        shares.append(asked / rerun)
        moved = answer["back"]["documents"], answer["gone"]["documents"]
        print(
            f"{'equal' if same else 'DIFFERS'}: kept {wanted['kept']:,}, {moved[0]:,} back, {moved[1]:,} gone; what-if "
            f"{asked:.2f} s of CPU ({wall:.1f} s), run {rerun:.2f} s, share {asked / rerun:.2f}: {' '.join(names)}",
            flush=True,
        )
        if not same:
            print(f"  what-if {found}\n  run     {wanted}\n  undecided {answer['undecided']}")
        count -= 1
    print(f"share of the CPU of a run: median {statistics.median(shares):.3f}, at most {max(shares):.3f}")
    return is_right


def cost(source: Path, work: Path, repeats: int) -> None:
    out = work / "cost"
    run(source, out, True, {})
    times: dict[bool, list[float]] = {True: [], False: []}
    for round_ in range(repeats):
        for scores in (True, False) if round_ % 2 else (False, True):
            times[scores].append(run(source, out, scores, {}))
    run(source, out, True, {})
    stored = sum(file.stat().st_size for file in (out / "_gristmill" / "scores").iterdir())
    size = sum(file.stat().st_size for file in source.iterdir())
    scores_of = StoredScores(str(out))
    documents = sum(file.documents for file in scores_of.files)
    ratios = [with_ / without for with_, without in zip(times[True], times[False], strict=True)]
    print(f"CPU without scores: {[round(t, 2) for t in times[False]]}, median {statistics.median(times[False]):.2f} s")
    print(f"CPU with scores:    {[round(t, 2) for t in times[True]]}, median {statistics.median(times[True]):.2f} s")
    fastest = min(times[True]) / min(times[False])
    print(f"ratio of pairs: median {statistics.median(ratios):.3f}; of the fastest {fastest:.3f}")
    print(f"disk: {stored:,} bytes, {stored / documents:.0f} for a document, {stored / size:.1%} of the input")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("work", type=Path, help="the folder with the corpora")
    parser.add_argument("--docs", default="20k", choices=("20k", "200k"))
    parser.add_argument("--questions", type=int, default=0)
    parser.add_argument("--cost", type=int, default=0, metavar="N", help="compare N pairs of runs")
    parser.add_argument("--seed", type=int, default=None)
    args = parser.parse_args()
    source = args.work / f"c{args.docs}"
    seed = random.SystemRandom().randrange(10**9) if args.seed is None else args.seed
    with tempfile.TemporaryDirectory(dir=args.work) as folder:
        if args.cost:
            cost(source, Path(folder), args.cost)
        if args.questions and not questions(source, Path(folder), args.questions, seed):
            sys.exit("a funnel differs")


if __name__ == "__main__":
    main()
