"""Planted duplicates of real pictures: precision and recall of image deduplication, by kind of copy.

    python benchmarks/images/duplicates.py PICTURES WORK [--half report] [--perception PYTHON] [--grid]

PICTURES is a folder of PNG pictures, each with a caption in a text file beside it, as in Debian's
`tuxpaint-stamps-default`. Of each, `planted.py` makes 15 copies. The pictures are halved by a hash of their names:
thresholds are chosen on the half ``tune`` (``--grid`` prints a table of them), and the results are those of the half
``report``. For each kind a set is deduplicated that holds the originals and the copies of this kind, and at the end one
with all copies. Pictures that differ in no pixel count as one picture.

A copy is found if it and its original are not both kept. Precision is the share of removals in favour of the same
picture; false removals are those in favour of another one. ``--perception`` is a Python interpreter with the package
`perception`: it gets the same files. Of its pairs, precision is the share that is of one picture. A copy is found if it
is in a pair with its original.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import shutil
import subprocess
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from planted import ORIGINAL, Copy, on_white, pictures, planted

from gristmill.backends.local import LocalExecutor
from gristmill.images.decode import decode
from gristmill.images.hashes import perceptual_hashes, pixels_hash, windows
from gristmill.kernels.thumbnails import first_near
from gristmill.pipeline import Pipeline
from gristmill.stages.barrier import BarrierStage
from gristmill.stages.image.deduplication import ImageExactDeduplication, ImagePerceptualDeduplication
from gristmill.stages.text.io import ParquetReader, ParquetWriter

ALL = "all kinds"
METHODS = {
    "bytes": lambda: ImageExactDeduplication(id_field="image_id"),
    "pixels": lambda: ImageExactDeduplication(level="pixels", id_field="image_id"),
    "perceptual": lambda: ImagePerceptualDeduplication(id_field="image_id"),
    "no crops": lambda: ImagePerceptualDeduplication(id_field="image_id", crops=False),
    "hash alone": lambda: ImagePerceptualDeduplication(id_field="image_id", verify=False),
}
DISTANCES, SIMILARITIES = (8, 10, 12, 14), (0.95, 0.96, 0.97, 0.98)


@dataclass
class Corpus:
    """Pictures with their copies, by id."""

    copies: dict[str, Copy] = field(default_factory=dict)
    pictures: dict[str, str] = field(default_factory=dict)
    """The picture that each name stands for: the first one with equal pixels."""

    @classmethod
    def of(cls, paths: Sequence[Path], folder: Path) -> Corpus:
        made = cls()
        first: dict[bytes, str] = {}
        for path in paths:
            name = str(path.relative_to(folder))
            for copy in planted(name, on_white(path)):
                made.copies[f"{name}|{copy.kind}"] = copy
                if copy.kind == ORIGINAL:
                    made.pictures[name] = first.setdefault(pixels_hash(decode(copy.data)), name)
        return made

    @property
    def kinds(self) -> list[str]:
        return [kind for kind in dict.fromkeys(copy.kind for copy in self.copies.values()) if kind != ORIGINAL]

    def some(self, kind: str) -> dict[str, Copy]:
        """The originals, and their copies of a kind."""
        return {ident: copy for ident, copy in self.copies.items() if kind == ALL or copy.kind in (ORIGINAL, kind)}

    def picture(self, ident: str) -> str:
        return self.pictures[self.copies[ident].name]


@dataclass(frozen=True)
class Score:
    """How well a set was deduplicated."""

    recall: float
    precision: float
    wrong: list[tuple[str, str]]
    seconds: float

    def __str__(self) -> str:
        return f"{self.recall:.3f} / {self.precision:.3f}"


def score(corpus: Corpus, some: dict[str, Copy], pairs: list[tuple[str, str]], joined: bool, seconds: float) -> Score:
    """Score pairs of ids. If they are ``joined``, both of two images with one survivor are found."""
    wrong = [pair for pair in pairs if corpus.picture(pair[0]) != corpus.picture(pair[1])]
    linked = set(pairs) | {(b, a) for a, b in pairs}
    survivor = dict(pairs) if joined else {}
    copies = {ident: f"{copy.name}|{ORIGINAL}" for ident, copy in some.items() if copy.kind != ORIGINAL}
    found = sum(
        (ident, first) in linked or (joined and survivor.get(ident, ident) == survivor.get(first, first))
        for ident, first in copies.items()
    )
    return Score(found / len(copies), 1 - len(wrong) / len(pairs) if pairs else 1.0, wrong, seconds)


def by_stage(corpus: Corpus, some: dict[str, Copy], stage: BarrierStage, work: Path, workers: int) -> Score:
    """Deduplicate with a stage in a pipeline from Parquet to Parquet."""
    shutil.rmtree(work, ignore_errors=True)
    (work / "in").mkdir(parents=True)
    data = pa.array([copy.data for copy in some.values()], pa.large_binary())
    pq.write_table(
        pa.table({"image": data, "image_id": list(some)}), work / "in" / "images.parquet", row_group_size=500
    )
    stages = [ParquetReader(str(work / "in"), text_field=None), stage, ParquetWriter(str(work / "out"))]
    began = time.perf_counter()
    Pipeline("duplicates", stages=stages).run(LocalExecutor({"num_cpus": workers, "view": "off"}))
    took = time.perf_counter() - began
    rows: list[dict[str, Any]] = []
    for path in sorted((work / "out" / "duplicates").glob("*.parquet")):
        rows += pq.read_table(path).to_pylist()
    return score(corpus, some, [(row["document_id"], row["survivor_document_id"]) for row in rows], True, took)


def by_perception(corpus: Corpus, some: dict[str, Copy], python: str, method: str, work: Path) -> Score:
    """Deduplicate the same images as files with `perception`."""
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    idents = {}
    for n, (ident, copy) in enumerate(some.items()):
        path = work / f"{n:06d}.{copy.end}"
        path.write_bytes(copy.data)
        idents[str(path)] = ident
    (work / "files.txt").write_text("\n".join(idents))
    script = Path(__file__).with_name("perception_pairs.py")
    command = [python, str(script), str(work / "files.txt"), str(work / "pairs.json"), method]
    subprocess.run(command, check=True, capture_output=True)
    found = json.loads((work / "pairs.json").read_text())
    return score(corpus, some, [(idents[a], idents[b]) for a, b in found["pairs"]], False, found["seconds"])


def grid(corpus: Corpus) -> Iterator[str]:
    """Yield recall and precision with all copies for several thresholds."""
    some = corpus.some(ALL)
    pixels = [decode(copy.data, 256) for copy in some.values()]
    order = sorted(range(len(some)), key=lambda n: -pixels[n].shape[0] * pixels[n].shape[1])
    idents = [list(some)[n] for n in order]
    found = perceptual_hashes([pixels[n] for n in order])
    yield "| distance | " + " | ".join(f"{least:.2f}" for least in SIMILARITIES) + " |"
    yield "|---|" + "---|" * len(SIMILARITIES)
    for most in DISTANCES:
        scores = []
        for least in SIMILARITIES:
            near = first_near(found.hashes, found.thumbnails, windows(), most, least).tolist()
            pairs = [(idents[n], idents[other]) for n, other in enumerate(near) if other >= 0]
            made = score(corpus, some, pairs, True, 0.0)
            scores.append(f"{made} ({len(made.wrong)})")
        yield f"| {most} | " + " | ".join(scores) + " |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("pictures", type=Path)
    parser.add_argument("work", type=Path)
    parser.add_argument("--half", choices=("tune", "report"), default="report")
    parser.add_argument("--perception", help="a Python interpreter with the package perception")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--grid", action="store_true", help="thresholds on all copies, and nothing else")
    options = parser.parse_args()
    wanted = options.half == "tune"
    names = {path: str(path.relative_to(options.pictures)) for path in pictures(options.pictures)}
    is_tuned = {path: hashlib.md5(name.encode()).digest()[0] % 2 == 0 for path, name in names.items()}
    corpus = Corpus.of([path for path in names if is_tuned[path] == wanted], options.pictures)
    distinct = len(set(corpus.pictures.values()))
    print(f"{len(corpus.pictures)} pictures ({distinct} distinct), {len(corpus.copies):,} images")
    if options.grid:
        print("recall / precision (false removals), all copies, by distance and similarity")
        print("\n".join(grid(corpus)))
        return
    methods = [*METHODS, *(["perception, PHash", "perception, SIFT"] if options.perception else [])]
    print("| kind | " + " | ".join(methods) + " |")
    print("|---|" + "---|" * len(methods))
    last: dict[str, Score] = {}
    for kind in [*corpus.kinds, ALL]:
        some = corpus.some(kind)
        for method in methods:
            if method in METHODS:
                last[method] = by_stage(corpus, some, METHODS[method](), options.work / "gristmill", options.workers)
            else:
                how = "phash" if "PHash" in method else "descriptors"
                last[method] = by_perception(corpus, some, options.perception, how, options.work / "perception")
        print(f"| {kind} | " + " | ".join(str(last[method]) for method in methods) + " |", flush=True)
    print("| seconds | " + " | ".join(f"{last[method].seconds:.1f}" for method in methods) + " |")
    for method, made in last.items():
        between: dict[tuple[str, str], int] = defaultdict(int)
        for one, other in made.wrong:
            first, second = sorted((corpus.picture(one), corpus.picture(other)))
            between[first, second] += 1
        shown = sorted(between.items(), key=lambda item: -item[1])[:12]
        print(f"\n{method}: {len(made.wrong)} false, between {len(between)} pairs of pictures")
        for (first, second), count in shown:
            print(f"  {count:3d}  {first}  {second}")


if __name__ == "__main__":
    main()
