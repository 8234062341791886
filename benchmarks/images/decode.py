"""Images decoded per second on two cores: gristmill, a Pillow loop in two processes, and a PyTorch DataLoader.

python decode.py [--sizes 500x500 4000x3000] [--repeats 5] [--seconds 8] [--work FOLDER] [--programs NAME ...]

All decode the same JPEG files of one folder and throw the pixels away: to a short side of at least 256, with the scaled
decoding of JPEG (`Image.draft`), and at full size with ``--full``. gristmill reads them with `ImageReader`; its second
stage decodes. Rounds alternate between the programs. Wall time is that of the whole program, from its start. CPU time
is that of the program with its children. The peak of memory is the largest sum of the proportional set sizes of all its
processes, sampled every 50 ms. With ``--memory``, files are also run ten times in number, to see whether it grows.

The program `pipeline` is a whole pipeline: it reads, decodes, filters by the share of blank pixels, keeps all images
and writes them to shards of WebDataset, in a folder that is removed afterwards. Compare its speed with that of
`gristmill`, which only reads and decodes.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

SHORT_SIDE = 256
HERE = Path(__file__).resolve()


def photo(width: int, height: int, seed: int) -> bytes:
    """A JPEG of quality 85 with structure in all sizes and a little noise, of about 1.5 bits per pixel."""
    from PIL import Image

    rng = np.random.default_rng(seed)
    pixels = np.zeros((height, width, 3), np.float32)
    for cells, weight in ((6, 120), (25, 60), (100, 25)):
        coarse = Image.fromarray(rng.integers(0, 256, (cells, cells, 3), dtype=np.uint8))
        pixels += np.asarray(coarse.resize((width, height), Image.Resampling.BICUBIC)) / 255 * weight
    pixels += rng.normal(0, 4, (height, width, 1)).astype(np.float32)
    made = io.BytesIO()
    Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(made, "JPEG", quality=85)
    return made.getvalue()


def write_files(folder: Path, size: str, count: int) -> None:
    """Write twelve pictures, and ``count`` names of them: as many files for programs, without the space."""
    if folder.exists():
        return
    width, height = map(int, size.split("x"))
    folder.mkdir(parents=True)
    for seed in range(12):
        (folder / f"{seed:06}.jpg").write_bytes(photo(width, height, seed))
    for number in range(12, count):
        os.link(folder / f"{number % 12:06}.jpg", folder / f"{number:06}.jpg")


def run_gristmill(folder: Path, full: bool) -> int:
    """Return the number of images that the second stage has decoded."""
    from gristmill.backends.local import LocalExecutor
    from gristmill.images.decode import decode
    from gristmill.images.pictures import Pictures, encoded
    from gristmill.pipeline import Pipeline
    from gristmill.stages.core import ProcessingStage
    from gristmill.stages.image.io.reader import ImageReader
    from gristmill.tasks import ImageBatch

    class Decode(ProcessingStage[ImageBatch, ImageBatch], builtin=True):
        """Like a stage of gristmill's own: it runs in the step that reads, on batches in parts of about 4 MB."""

        accounts_for_documents = True
        row_wise = True

        def inputs(self) -> tuple[list[str], list[str]]:
            return ["data"], ["image"]

        def outputs(self) -> tuple[list[str], list[str]]:
            return ["data"], []

        def process(self, task: ImageBatch) -> ImageBatch:
            if full:
                for data in encoded(task):
                    assert data is not None and decode(data).shape[2] == 3
            else:
                task, pictures = Pictures.of(task)
                assert all(pixels.shape[2] == 3 for pixels in pictures.pixels)
            kept = ImageBatch(data=task.data.drop_columns(["image"]))
            kept.account = task.take_account()
            return kept

    pipeline = Pipeline("decode", stages=[ImageReader(str(folder)), Decode()])
    result = pipeline.run(LocalExecutor({"num_cpus": 2, "view": "off"}), keep_outputs=True, profile_store=False)
    return sum(task.num_items for task in result)


def run_pipeline(folder: Path, full: bool) -> int:
    """Return the number of images that a pipeline has read, decoded, filtered and written."""
    from gristmill.backends.local import LocalExecutor
    from gristmill.pipeline import Pipeline
    from gristmill.stages.image.filters import BlankImageFilter
    from gristmill.stages.image.io.image_writer import ImageWriter
    from gristmill.stages.image.io.reader import ImageReader
    from gristmill.stages.text.filters import ScoreFilter

    assert not full, "filters look at reduced images"
    with tempfile.TemporaryDirectory(dir=folder.parent) as output:
        stages = [ImageReader(str(folder)), ScoreFilter(BlankImageFilter(1.0)), ImageWriter(output)]
        executor = LocalExecutor({"num_cpus": 2, "view": "off"})
        result = Pipeline("pipeline", stages=stages).run(executor, profile_store=False)
        return result.ledger.total().kept


def decode_by_pillow(path: str, full: bool) -> int:
    from PIL import Image

    with Image.open(path) as image:
        if not full:
            image.draft("RGB", (SHORT_SIDE, SHORT_SIDE))
        return int(np.asarray(image if image.mode == "RGB" else image.convert("RGB")).shape[2] == 3)


def _pillow_worker(job: tuple[list[str], bool]) -> int:
    paths, full = job
    return sum(decode_by_pillow(path, full) for path in paths)


def run_pillow(folder: Path, full: bool) -> int:
    """A loop in each of two processes, each over half of the files."""
    import multiprocessing

    paths = sorted(str(path) for path in folder.iterdir())
    with multiprocessing.get_context("fork").Pool(2) as pool:
        return sum(pool.map(_pillow_worker, [(paths[0::2], full), (paths[1::2], full)]))


def run_dataloader(folder: Path, full: bool) -> int:
    """Two workers, batches of 32 arrays; no transformation and no collation into a tensor."""
    import torch
    from torch.utils.data import DataLoader, Dataset

    torch.set_num_threads(1)
    paths = sorted(str(path) for path in folder.iterdir())

    class Files(Dataset):
        def __len__(self) -> int:
            return len(paths)

        def __getitem__(self, number: int) -> int:
            return decode_by_pillow(paths[number], full)

    return sum(sum(batch) for batch in DataLoader(Files(), batch_size=32, num_workers=2, collate_fn=list))


PROGRAMS = {
    "gristmill": run_gristmill,
    "pipeline": run_pipeline,
    "pillow": run_pillow,
    "dataloader": run_dataloader,
}


def descendants(root: int) -> Iterator[int]:
    yield root
    try:
        for thread in os.listdir(f"/proc/{root}/task"):
            for child in Path(f"/proc/{root}/task/{thread}/children").read_text().split():
                yield from descendants(int(child))
    except OSError:
        return


def memory_of(root: int) -> int:
    """The proportional set sizes of a process and its descendants, in bytes."""
    total = 0
    for process in descendants(root):
        try:
            lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
        except OSError:
            continue
        total += sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))
    return total


def measured(program: str, folder: Path, full: bool, count: int) -> dict[str, float]:
    """Run a program in a process of its own."""
    command = [sys.executable, str(HERE), "--program", program, "--folder", str(folder), *(["--full"] if full else [])]
    begin = time.perf_counter()
    running = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    peak = 0
    while running.poll() is None:
        peak = max(peak, memory_of(running.pid))
        time.sleep(0.05)
    wall = time.perf_counter() - begin
    assert running.stdout is not None
    told = json.loads(running.stdout.read().splitlines()[-1])
    assert told["images"] == count, (program, told, count)
    return {"wall": wall, "cpu": told["cpu"], "peak": peak, "work": told["work"]}


def one_program(program: str, folder: Path, full: bool) -> None:
    """Run it here, and print the images, its time without the start of the interpreter, and the CPU time of all."""
    begin = time.perf_counter()
    images = PROGRAMS[program](folder, full)
    work = time.perf_counter() - begin
    times = os.times()
    cpu = times.user + times.system + times.children_user + times.children_system
    print(json.dumps({"images": images, "work": work, "cpu": cpu}))


def show(title: str, rounds: dict[str, list[dict[str, float]]], count: int) -> None:
    print(f"\n{title}\n")
    print("| | images/s, median (range) | without the start | CPU s | CPU ms per image | peak memory MB |")
    print("|---|---|---|---|---|---|")
    for program, runs in rounds.items():
        rates = sorted(count / one["wall"] for one in runs)
        work = statistics.median(count / one["work"] for one in runs)
        cpu = statistics.median(one["cpu"] for one in runs)
        peak = max(one["peak"] for one in runs) / 1e6
        print(
            f"| {program} | {statistics.median(rates):,.0f} ({rates[0]:,.0f}-{rates[-1]:,.0f}) | {work:,.0f} | "
            f"{cpu:.1f} | {1000 * cpu / count:.2f} | {peak:,.0f} |",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", nargs="+", default=["500x500", "4000x3000"])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=8, help="about how long a run takes: more files")
    parser.add_argument("--work", type=Path, default=Path(tempfile.gettempdir()) / "gristmill-decode")
    parser.add_argument("--full", action="store_true", help="decode at full size")
    parser.add_argument("--memory", action="store_true", help="also ten times as many files, once")
    parser.add_argument("--programs", nargs="+", choices=PROGRAMS, default=list(PROGRAMS))
    parser.add_argument("--program", choices=PROGRAMS, help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.program:
        one_program(given.program, given.folder, given.full)
        return
    for size in given.sizes:
        width, height = map(int, size.split("x"))
        pixels = width * height if given.full or width * height < 4 * SHORT_SIDE**2 * 2 else width * height / 8
        count = max(24, int(given.seconds * 2 * 2.5e8 / pixels) // 24 * 24)
        for factor in (1, 10) if given.memory else (1,):
            folder = given.work / f"{size}-{count * factor}"
            write_files(folder, size, count * factor)
            programs = [program for program in given.programs if not (given.full and program == "pipeline")]
            rounds: dict[str, list[dict[str, float]]] = {program: [] for program in programs}
            for _ in range(given.repeats if factor == 1 else 1):
                for program, runs in rounds.items():
                    runs.append(measured(program, folder, given.full, count * factor))
            how = "full size" if given.full else f"short side of at least {SHORT_SIDE}"
            show(
                f"{size}, {how}, {count * factor} files, {given.repeats if factor == 1 else 1} runs of each",
                rounds,
                count * factor,
            )


if __name__ == "__main__":
    main()
