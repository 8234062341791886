"""The cost and the size of the report of a run.

python benchmarks/report.py cost CORPUS [ROUNDS]    CPU seconds of a filter run with and without, in turns
python benchmarks/report.py size N [N ...]          sizes for N short documents, before and after `gristmill report`
"""

from __future__ import annotations

import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

PIPELINE = """\
stages:
  - JsonlReader: {file_paths: %s}
  - recipe: gopher-quality
  - recipe: gopher-repetition
  - JsonlWriter: {path: output/}
"""
SHORT = """\
stages:
  - JsonlReader: {file_paths: input/}
  - recipe: {name: gopher-quality, set: {word_count.min_words: 10, mean_word_length.min_mean_word_length: 2.5}}
  - recipe: gopher-repetition
  - ExactDeduplication: {}
  - JsonlWriter: {path: output/}
"""
WORDS = ["the", "of", "and", "to", "in", "is", "that", "for", "it", "as", "was", "with", "be", "by", "on", "not", "are"]
FILES = 16


def gristmill(folder: Path, *arguments: str) -> float:
    """Run a command and return the CPU seconds of all its processes."""
    before = os.times()
    line = [sys.executable, "-m", "gristmill.cli.main", *arguments]
    subprocess.run(line, cwd=folder, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    after = os.times()
    return after.children_user + after.children_system - before.children_user - before.children_system


def cost(corpus: str, rounds: int) -> None:
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        (folder / "p.yaml").write_text(PIPELINE % os.path.abspath(corpus))
        used: dict[str, list[float]] = {"--no-report": [], "--report": []}
        for number in range(rounds + 1):
            for option in sorted(used, reverse=bool(number % 2)):
                seconds = gristmill(folder, "run", "p.yaml", "--fresh", "--view", "off", option)
                if number:  # the first round fills caches
                    used[option].append(seconds)
        without, with_it = (statistics.median(used[option]) for option in ("--no-report", "--report"))
        print(f"CPU s without: {without:.2f} {[round(x, 2) for x in used['--no-report']]}")
        print(f"CPU s with:    {with_it:.2f} {[round(x, 2) for x in used['--report']]}")
        print(f"medians: {with_it - without:+.2f} s, {with_it / without - 1:+.1%}")


def size(count: int) -> None:
    random_ = random.Random(1)
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        (folder / "p.yaml").write_text(SHORT)
        (folder / "input").mkdir()
        texts = [" ".join(random_.choice(WORDS) for _ in range(random_.randrange(3, 30))) for _ in range(10_000)]
        lines = [json.dumps(text) for text in texts]
        for number in range(FILES):
            with open(folder / "input" / f"{number:02}.jsonl", "w") as file:
                # each text with a number of its own, but for every 50th document
                for i in range(number, count, FILES):
                    own = "" if i % 50 == 0 else f" {i}"
                    file.write(f'{{"id": "d{i}", "text": {lines[i % len(lines)][:-1]}{own}"}}\n')
        used = gristmill(folder, "run", "p.yaml", "--view", "off")
        page = folder / "output/_gristmill/report.html"
        record = folder / "output/_gristmill/report.json"
        data = json.loads(record.read_text())
        print(
            f"{data['documents']['read']:,} documents, {data['documents']['kept']:,} kept, {used:.1f} CPU s: "
            f"report.html {page.stat().st_size:,} bytes, report.json {record.stat().st_size:,} bytes"
        )
        used = gristmill(folder, "report", "output")
        print(f"  gristmill report: {page.stat().st_size:,} bytes, {used:.1f} CPU s")


def main() -> None:
    match sys.argv[1:]:
        case ["cost", corpus, *rounds]:
            cost(corpus, int(rounds[0]) if rounds else 5)
        case ["size", *counts] if counts:
            for count in counts:
                size(int(count))
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    main()
