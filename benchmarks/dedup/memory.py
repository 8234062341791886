"""Fuzzy deduplication of many short documents within a memory limit: what was forecast, and what it took.

    python benchmarks/dedup/memory.py WORK [--documents 10000000] [--limit 4GB] [--tenth]

The corpus is made in WORK: seeded words, about 150 bytes a document, a fifth of them near-duplicates. With several
sizes peak memory stands side by side. Memory is the PSS of the whole tree of processes, files that are mapped into it
not counted twice.
"""

from __future__ import annotations

import argparse
import multiprocessing
import random
import re
import shutil
import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "text_filters"))
from measure import measure  # noqa: E402  # of the benchmark beside this one

FILES = 32
WORDS = 20


def make_file(job: tuple[Path, int, int]) -> None:
    path, number, documents = job
    rng = random.Random(number)
    same = random.Random(0)
    words = ["".join(same.choices("etaoinshrdlu", k=same.randrange(3, 11))) for _ in range(50_000)]
    shared = [same.choices(words, k=WORDS) for _ in range(20_000)]
    with open(path, "w") as file:
        for i in range(documents):
            if rng.random() < 0.2:
                some = list(rng.choice(shared))
                some[-1] = rng.choice(words)
            else:
                some = rng.choices(words, k=WORDS)
            file.write(f'{{"id": "{number}-{i}", "text": "{" ".join(some)}"}}\n')


def make_corpus(folder: Path, documents: int) -> None:
    folder.mkdir(parents=True)
    jobs = [(folder / f"{n:03d}.jsonl", n, documents // FILES) for n in range(FILES)]
    with multiprocessing.Pool(2) as pool:
        pool.map(make_file, jobs, chunksize=1)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("work", type=Path)
    parser.add_argument("--documents", type=int, default=10_000_000)
    parser.add_argument("--limit", default="4GB")
    parser.add_argument("--tenth", action="store_true", help="also a tenth of the documents, side by side")
    args = parser.parse_args()
    sizes = [args.documents // 10, args.documents] if args.tenth else [args.documents]
    for documents in sizes:
        source = args.work / f"short-{documents}"
        if not source.exists():
            make_corpus(source, documents)
        output = args.work / "out-memory"
        shutil.rmtree(output, ignore_errors=True)
        log = args.work / f"memory-{documents}.log"
        job = HERE / "jobs" / "gristmill_fuzzy.py"
        command = [
            sys.executable,
            str(job),
            str(source),
            str(output),
            "2",
            "no-clusters",
            f'memory_limit="{args.limit}"',
        ]
        measured = measure(f"{documents}", command, log, 3600)
        output = log.read_text()
        forecast = re.findall(r"estimated memory .*", output)
        text = sum(path.stat().st_size for path in source.iterdir())
        print(f"{documents:,} documents, {text / 2**30:.2f} GiB, memory_limit {args.limit}")
        print(f"  forecast: {forecast[0] if forecast else 'none'}")
        print(
            f"  measured: peak {measured.peak_pss / 2**20:,.0f} MiB, {measured.wall_s:.0f} s, "
            f"CPU {measured.cpu_s:.0f} s, kept {measured.figures.get('kept'):,}, exit code {measured.code}"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
