"""Makes the corpus of the benchmark: real English prose, mixed into documents that a filter has work with.

    python benchmarks/text_filters/corpus.py bench-work

Paragraphs come from Debian's documentation packages (fetched with ``apt-get download``; run ``apt-get update`` first)
and from the documentation that is installed here. Of the documents 50 % are new, 20 % exact copies, 20 % copies with
5 % of their words edited, and 10 % junk of seven kinds. Writes WORK/c200k (200,000 documents in 16 files) and WORK/c20k
(the first tenth of each file). The same packages and the same seed give the same bytes; the digest at the end says
which they were.
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
import json
import random
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from paragraphs import write_pool

PACKAGES = (Path(__file__).parent / "corpus_packages.txt").read_text().split()

NEW, EXACT, NEAR, JUNK = "uenj"
KINDS = [NEW] * 50 + [EXACT] * 20 + [NEAR] * 20 + [JUNK] * 10
LOREM = (
    "Lorem ipsum dolor sit amet, consectetur adipiscing elit, sed do eiusmod tempor incididunt ut labore et dolore "
    "magna aliqua. "
)


def fetch_packages(folder: Path) -> None:
    """Download the packages that are not there yet."""
    folder.mkdir(parents=True, exist_ok=True)
    there = {path.name.split("_")[0] for path in folder.glob("*.deb")}
    for package in PACKAGES:
        if package not in there:
            done = subprocess.run(["apt-get", "download", "-qq", package], cwd=folder, stderr=subprocess.DEVNULL)
            if done.returncode:
                print(f"{package}: not available; the corpus will differ", file=sys.stderr)


class Mixer:
    """Draws documents from a pool of paragraphs. The order of the draws is the corpus: keep it."""

    def __init__(self, pool: list[str], seed: int) -> None:
        self.rng = random.Random(seed)
        self.pool = pool
        self.rng.shuffle(self.pool)
        self.vocabulary = [word for paragraph in self.pool[:20_000] for word in paragraph.split()]
        self.next_in_pool = 0

    def documents(self, count: int) -> list[dict[str, str]]:
        drawn = [
            {
                "id": f"doc-{i:07d}-{kind}",
                "text": text,
                "url": f"https://site{self.rng.randrange(5000)}.example/{kind}/{i}",
            }
            for i, (kind, text) in enumerate(self._draw(count))
        ]
        self.rng.shuffle(drawn)
        return drawn

    def _draw(self, count: int) -> Iterator[tuple[str, str]]:
        new: list[str] = []
        for _ in range(count):
            kind = KINDS[self.rng.randrange(100)] if new else NEW
            if kind == NEW:
                new.append(self._new())
                yield kind, new[-1]
            elif kind == EXACT:
                yield kind, self.rng.choice(new)
            elif kind == NEAR:
                yield kind, self._edited(self.rng.choice(new))
            else:
                yield kind, self._junk()

    def _paragraph(self) -> str:
        if self.next_in_pool >= len(self.pool):
            self.rng.shuffle(self.pool)
            self.next_in_pool = 0
        self.next_in_pool += 1
        return self.pool[self.next_in_pool - 1]

    def _new(self) -> str:
        """Paragraphs up to a length drawn from a log-normal law with a mean of some 2.5 KB."""
        wanted = min(20_000, max(300, int(self.rng.lognormvariate(7.55, 0.75))))
        paragraphs: list[str] = []
        length = 0
        while length < wanted:
            paragraphs.append(self._paragraph())
            length += len(paragraphs[-1]) + 2
        # some paragraphs have a sentence to the line
        lines = [p.replace(". ", ".\n") if self.rng.random() < 0.15 else p for p in paragraphs]
        return "\n\n".join(lines)

    def _edited(self, text: str) -> str:
        """5 % of the words replaced, removed or followed by another one."""
        parts = re.split(r"(\s+)", text)
        for i in range(0, len(parts), 2):
            if parts[i] and self.rng.random() < 0.05:
                how = self.rng.random()
                if how < 0.6:
                    parts[i] = self.rng.choice(self.vocabulary)
                elif how < 0.8:
                    parts[i] = ""
                else:
                    parts[i] = parts[i] + " " + self.rng.choice(self.vocabulary)
        return "".join(parts)

    def _junk(self) -> str:
        rng = self.rng
        kinds = (
            self._symbols,
            lambda: LOREM * rng.randrange(5, 30),
            self._one_line_again_and_again,
            self._bullets,
            self._script,
            self._teasers,
            lambda: " ".join(self._paragraph().split()[: rng.randrange(3, 40)]),
        )
        return kinds[rng.randrange(len(kinds))]()

    def _symbols(self) -> str:
        signs = "#$%^&*@~|<>=+_{}[] \n0123456789"
        return "".join(self.rng.choice(signs) for _ in range(self.rng.randrange(500, 4000)))

    def _one_line_again_and_again(self) -> str:
        lines = ["Home", "Click here to continue", self._paragraph()[:80], "Share this page with your friends"]
        return "\n".join([self.rng.choice(lines)] * self.rng.randrange(20, 80))

    def _bullets(self) -> str:
        return "\n".join(
            self.rng.choice("-*•") + " " + " ".join(self._paragraph().split()[: self.rng.randrange(3, 9)])
            for _ in range(self.rng.randrange(15, 60))
        )

    def _script(self) -> str:
        return "\n".join(
            f"var x{i} = function(a, b) {{ if (a !== b) {{ "
            f"return document.getElementById('{self.rng.randrange(10**6)}'); }} }};"
            for i in range(self.rng.randrange(10, 40))
        )

    def _teasers(self) -> str:
        return "\n".join(" ".join(self._paragraph().split()[:12]) + "..." for _ in range(self.rng.randrange(10, 40)))


def write(documents: list[dict[str, str]], folder: Path, files: int) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    each = -(-len(documents) // files)
    for number in range(files):
        with (folder / f"part-{number:03d}.jsonl").open("w", encoding="utf-8") as out:
            for document in documents[number * each : (number + 1) * each]:
                out.write(json.dumps(document, ensure_ascii=False) + "\n")


def write_head(source: Path, folder: Path, lines: int) -> None:
    """The first lines of each file of a corpus as a smaller corpus."""
    folder.mkdir(parents=True, exist_ok=True)
    for path in sorted(source.glob("*.jsonl")):
        with path.open("rb") as whole:
            (folder / path.name).write_bytes(b"".join(itertools.islice(whole, lines)))


def report(folder: Path) -> None:
    digest = hashlib.sha256()
    documents = size = 0
    for path in sorted(folder.glob("*.jsonl")):
        data = path.read_bytes()
        digest.update(data)
        documents += data.count(b"\n")
        size += len(data)
    print(f"{folder}: {documents:,} documents, {size / 1e6:.1f} MB, sha256 {digest.hexdigest()[:16]}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("work", type=Path, help="the folder for everything the benchmark makes")
    parser.add_argument("--documents", type=int, default=200_000)
    parser.add_argument("--files", type=int, default=16)
    parser.add_argument("--seed", type=int, default=7)
    args = parser.parse_args()
    pool = args.work / "paragraphs.txt"
    if not pool.exists():
        fetch_packages(args.work / "debs")
        write_pool(args.work / "debs", args.work / "extracted", pool)
    with pool.open(encoding="utf-8") as lines:
        mixer = Mixer([line.rstrip("\n") for line in lines], args.seed)
    large, small = args.work / "c200k", args.work / "c20k"
    write(mixer.documents(args.documents), large, args.files)
    write_head(large, small, args.documents // args.files // 10)
    report(large)
    report(small)


if __name__ == "__main__":
    main()
