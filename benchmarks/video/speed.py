"""Speed on real videos: the pipeline against plain code in one process, and against NeMo Curator's stages on CPUs.

    python benchmarks/video/speed.py WORK [--files 200] [--repeats 3] [--curator PYTHON --ffmpeg FOLDER]

WORK is that of corpus.py. Two chains, each with two cores:

- read, split by TransNetV2, encode (H.264), measure and filter motion, embed (EfficientNet-Lite0), write: chains.py
  against plain.py;
- read, clips of 10 s, encode (VP9), motion, write: chains.py against the stages of NeMo Curator, which PYTHON imports.
  FOLDER has ffmpeg and ffprobe. It has no chain with shots on CPUs: its TransNetV2 calls CUDA.

``--files`` takes so many files, evenly spread over the corpus.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import sys
from dataclasses import dataclass
from pathlib import Path

from corpus import corpus
from measured import Measured, measured

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Program:
    """A command that gets a folder of videos and one for its output."""

    title: str
    command: tuple[str, ...]
    path: str = ""
    """A folder before those of PATH."""


def chosen(work: Path, count: int) -> tuple[Path, int]:
    """Return a folder with links to files of the corpus, and their frames."""
    listed = corpus(work)
    some = [listed[n * len(listed) // count] for n in range(count)]
    folder = work / f"speed-{count}"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for one in some:
        os.link(work / "corpus" / one["file"], folder / one["file"])
    return folder, sum(one["frames"] for one in some)


def show(programs: list[Program], folder: Path, out: Path, frames: int, repeats: int) -> None:
    """Print a table of the programs, which run in turns."""
    runs: dict[str, list[Measured]] = {program.title: [] for program in programs}
    told: dict[str, dict[str, float]] = {}
    for _ in range(repeats):
        for program in programs:
            shutil.rmtree(out, ignore_errors=True)
            paths = os.pathsep.join(part for part in (program.path, os.environ["PATH"]) if part)
            seen = measured([*program.command, str(folder), str(out)], {"PATH": paths, "OMP_NUM_THREADS": "1"})
            runs[program.title].append(seen)
            told[program.title] = json.loads(seen.output.splitlines()[-1])
    print("| | frames/s, median (range) | CPU s, median (range) | frames per CPU s | clips | kept | peak MB | load |")
    print("|---|---|---|---|---|---|---|---|")
    for title, found in runs.items():
        rates = sorted(frames / one.wall_s for one in found)
        cpu = sorted(one.cpu_s for one in found)
        print(
            f"| {title} | {statistics.median(rates):.1f} ({rates[0]:.1f}-{rates[-1]:.1f}) | "
            f"{statistics.median(cpu):.1f} ({cpu[0]:.1f}-{cpu[-1]:.1f}) | {frames / statistics.median(cpu):.1f} | "
            f"{told[title]['clips']} | {told[title]['kept']} | {max(one.peak_bytes for one in found) / 1e6:,.0f} | "
            f"{statistics.median(one.load for one in found):.0f} |",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("work", type=Path)
    parser.add_argument("--files", type=int, default=200)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--curator", help="a Python that can import nemo_curator")
    parser.add_argument("--ffmpeg", default="", help="a folder with ffmpeg and ffprobe")
    parser.add_argument("--only", choices=("shots", "stride"))
    args = parser.parse_args()
    folder, frames = chosen(args.work, args.files)
    print(f"{args.files} files, {frames:,} frames, {args.repeats} runs of each in turns")
    chains, out = str(HERE / "chains.py"), args.work / "speed-out"
    if args.only != "stride":
        shots = Program("**gristmill**, 2 workers", (sys.executable, chains, "shots"))
        plain = Program("plain code, 1 process, 2 threads", (sys.executable, str(HERE / "plain.py")))
        show([shots, plain], folder, out, frames, args.repeats)
    if args.curator and args.only != "shots":
        ours = Program("**gristmill**, VP9, 2 workers", (sys.executable, chains, "stride"))
        theirs = Program("NeMo Curator's stages, 2 threads", (args.curator, chains, "curator"), args.ffmpeg)
        show([ours, theirs], folder, out, frames, args.repeats)


if __name__ == "__main__":
    main()
