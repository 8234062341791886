"""How many copies of real clips `ClipPerceptualDeduplication` finds, of each kind, and what it removes wrongly.

    nice -n 19 python benchmarks/video/duplicates.py WORK [--parts 8] [--min-similarity 0.9] [--max-distance 12]

takes the real clips of sources.py in WORK/sources, cuts up to so many parts of 2.5 s out of each, and encodes each part
again in many ways. WORK/duplicates keeps them. Then one run removes duplicates. A part and its copies are a family: a
copy is found if it is removed for a member of its family, and wrong if it is removed for a member of another one.
"""

from __future__ import annotations

import argparse
import json
import shutil
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image
from sources import clips

from gristmill.backends.local import LocalExecutor
from gristmill.pipeline import Pipeline
from gristmill.text import ParquetReader
from gristmill.video import ClipPerceptualDeduplication, ClipWriterStage
from gristmill.videos.decode import frames
from gristmill.videos.encode import Encoding, encode_pixels
from gristmill.videos.probe import probe

SECONDS = 2.5
HEIGHT = 270
LEAST_FRAMES = 20
ORIGINAL = "original"
VP9 = Encoding("libvpx-vp9", crf=36, preset="8")
Pictures = Sequence[Any]


def even(side: float) -> int:
    """The nearest even number of pixels below."""
    return max(2, int(side) // 2 * 2)


def resized(pictures: Pictures, height: float, width: float) -> list[Any]:
    """The pictures with other sides."""
    size = even(width), even(height)
    return [np.asarray(Image.fromarray(one).resize(size, Image.Resampling.BILINEAR)) for one in pictures]


def copies(pictures: Pictures, rate: float) -> Iterator[tuple[str, bytes]]:
    """Yield a part and its copies by kind."""
    height, width = pictures[0].shape[:2]
    x264 = partial(Encoding, "libx264", preset="veryfast")
    yield ORIGINAL, encode_pixels(pictures, rate, x264(crf=20))
    yield "low quality", encode_pixels(pictures, rate, x264(crf=36))
    yield "half size", encode_pixels(resized(pictures, height / 2, width / 2), rate, x264())
    yield "VP9", encode_pixels(pictures, rate, VP9)
    bar = np.zeros((even(height * 0.06), width, 3), np.uint8)
    yield "letterboxed", encode_pixels([np.concatenate([bar, one, bar]) for one in pictures], rate, x264())
    yield "half the rate", encode_pixels(pictures[::2], rate / 2, x264())
    yield "cut by 5 %", encode_pixels(pictures[len(pictures) // 20 :], rate, x264())
    grey = [np.asarray(Image.fromarray(one).convert("L").convert("RGB")) for one in pictures]
    yield "grey", encode_pixels(grey, rate, x264())
    yield "squeezed", encode_pixels(resized(pictures, height, width * 0.8), rate, x264())
    top, left = even(height * 0.03), even(width * 0.03)
    yield "cropped by 6 %", encode_pixels([one[top:-top, left:-left] for one in pictures], rate, x264())
    brighter = [np.clip(one * 1.1 + 10, 0, 255).astype(np.uint8) for one in pictures]
    yield "brighter", encode_pixels(brighter, rate, x264())
    yield "mirrored", encode_pixels([one[:, ::-1] for one in pictures], rate, x264())


def family_of(part: tuple[Path, float, float]) -> list[dict[str, Any]]:
    """A part and its copies as rows; none if it is too short."""
    path, start, end = part
    info = probe(str(path))
    scale = min(1.0, HEIGHT / info.height)
    size = even(info.height * scale), even(info.width * scale)
    pictures = [one.pixels for one in frames(str(path), start, end, size=size, tolerant=True)]
    if len(pictures) < LEAST_FRAMES:
        return []
    family = f"{path.name}@{start:g}"
    return [{"clip_id": f"{family} {kind}", "clip": data} for kind, data in copies(pictures, info.fps)]


def make(sources: Sequence[Path], folder: Path, parts: int) -> None:
    """Write the clips of all families to Parquet files."""
    jobs = []
    for path in sources:
        length = probe(str(path)).duration_s
        count = min(parts, max(1, int(length // SECONDS)))
        starts = [round(number * length / count, 3) for number in range(count)]
        jobs += [(path, start, round(start + min(SECONDS, length / count), 3)) for start in starts]
    making = folder.with_suffix(".part")
    shutil.rmtree(making, ignore_errors=True)
    making.mkdir(parents=True)
    with ProcessPoolExecutor() as pool:
        for number, rows in enumerate(pool.map(family_of, jobs)):
            if rows:
                pq.write_table(pa.Table.from_pylist(rows), making / f"{number:04}.parquet")
    making.rename(folder)


def measured(folder: Path, out: Path, stage: ClipPerceptualDeduplication) -> tuple[dict[str, str], list[str], float]:
    """Remove duplicates. Return the survivor of each removed clip, all clips, and the seconds."""
    shutil.rmtree(out, ignore_errors=True)
    began = time.perf_counter()
    reader = ParquetReader(str(folder), text_field=None)
    Pipeline("duplicates", stages=[reader, stage, ClipWriterStage(out, dry_run=True)]).run(LocalExecutor())
    seconds = time.perf_counter() - began
    records = [pq.read_table(path) for path in sorted((out / "duplicates").glob("*.parquet"))]
    removed = {row["document_id"]: row["survivor_document_id"] for table in records for row in table.to_pylist()}
    names = [
        name for path in sorted(folder.iterdir()) for name in pq.read_table(path, columns=["clip_id"])[0].to_pylist()
    ]
    return removed, names, seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("work", type=Path)
    parser.add_argument("--parts", type=int, default=8)
    parser.add_argument("--min-similarity", type=float, default=0.9)
    parser.add_argument("--max-distance", type=int, default=12)
    given = parser.parse_args()
    folder = given.work / f"duplicates-{given.parts}"
    if not folder.exists():
        found = clips(given.work)
        usable = [path for name, path in found.items() if "distorted" not in name and "damaged" not in name]
        make(usable, folder, given.parts)
    stage = ClipPerceptualDeduplication(given.max_distance, given.min_similarity, survivor="first", id_field="clip_id")
    removed, names, seconds = measured(folder, given.work / "duplicates-out", stage)
    total: Counter[str] = Counter()
    found: Counter[str] = Counter()
    wrong: list[tuple[str, str]] = []
    for name in names:
        family, _, kind = name.partition(" ")
        total[kind] += 1
        if name in removed:
            same = removed[name].partition(" ")[0] == family
            found[kind] += same
            wrong += [] if same else [(name, removed[name])]
    for kind in total:
        print(f"{kind:16} {found[kind]:4} of {total[kind]:4} found")
    print(json.dumps({"clips": len(names), "removed": len(removed), "wrong": wrong, "seconds": round(seconds, 1)}))


if __name__ == "__main__":
    main()
