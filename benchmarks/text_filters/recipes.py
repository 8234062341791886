"""How fast each recipe runs: JSONL to JSONL with one worker, documents and megabytes for each second and core.

python benchmarks/text_filters/recipes.py bench-work --docs 200k
"""

from __future__ import annotations

import argparse
import shutil
import sys
from pathlib import Path
from statistics import median

from measure import measure
from table import figure

from gristmill.stages.text.recipes import RECIPES

HERE = Path(__file__).parent


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("work", type=Path, help="the folder with the corpus")
    parser.add_argument("--docs", choices=("20k", "200k"), default="200k")
    parser.add_argument("--repeats", type=int, default=1)
    args = parser.parse_args()
    source = args.work.absolute() / f"c{args.docs}"
    size = sum(path.stat().st_size for path in source.glob("*.jsonl"))
    documents = {"20k": 20_000, "200k": 200_000}[args.docs]
    names = list(dict.fromkeys(one.name for one in RECIPES))
    print("| recipe, one worker | after start-up s | documents/s | MB/s | kept |\n|---|---|---|---|---|")
    for chosen in [*([name] for name in names), ["gopher-quality", "gopher-repetition"]]:
        spent, kept = [], 0
        for i in range(args.repeats):
            out = args.work.absolute() / "out" / f"recipe-{'-'.join(chosen)}-{i}"
            shutil.rmtree(out, ignore_errors=True)
            command = [sys.executable, str(HERE / "gristmill_job.py"), str(source), str(out), "1", "excluded", *chosen]
            done = measure("+".join(chosen), command, args.work / "logs" / f"{out.name}.log")
            if not done.ok or done.work_s is None:
                sys.exit(f"{chosen} failed: see {args.work}/logs/{out.name}.log")
            spent.append(done.work_s)
            kept = done.figures["kept"]
        each = median(spent)
        name = " + ".join(chosen)
        print(
            f"| {name} | {figure(each)} | {documents / each:,.0f} | {size / each / 1e6:,.0f} | {kept:,} |", flush=True
        )


if __name__ == "__main__":
    main()
