"""CLIP ViT-L/14 on one GPU: the model alone, decoding alone, and the whole pipeline from WebDataset shards.

    python benchmarks/images/gpu.py prepare WORK --images 200000
    python benchmarks/images/gpu.py model WORK --batch 64 128 256 512 --precisions float16 bfloat16 --eager
    python benchmarks/images/gpu.py decode WORK
    python benchmarks/images/gpu.py pipeline WORK --batch 256 --workers 1

`prepare` saves a checkpoint of the shape of CLIP ViT-L/14 with random weights, and shards of JPEGs of 500 x 375 pixels
(``--tiny``: two layers, to try the commands on a CPU). `model` computes batches that are in the memory of the machine,
compiled, and with ``--eager`` also not compiled. `decode` reads, decodes and resizes with all cores but one, and drops
the pixels. `pipeline` also embeds and writes Parquet. Of both, images per second between the first fifth of the shards
and the last twentieth. NVML says how busy the GPU was in that time: the share of its samples in which a kernel ran. The
target of `pipeline` is 95 % of the smaller of `model` and `decode`.

Needs torch, transformers, pillow and nvidia-ml-py, and the source tree on PYTHONPATH.
"""

from __future__ import annotations

import argparse
import asyncio
import io
import multiprocessing
import os
import random
import shutil
import sys
import tarfile
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "models"))

from pipeline_gpu import GpuSamples

from gristmill import DocumentBatch, ProcessingStage
from gristmill.models.vision.rows import Items, RowEngine
from gristmill.stages.image.embedders.input import PIXELS

VIT_L_14 = dict(hidden_size=1024, intermediate_size=4096, num_hidden_layers=24, num_attention_heads=16, patch_size=14)
TINY = dict(hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4, patch_size=14)
GFLOP = 162.0
"""Of ViT-L/14 for one image: 2 for each weight and token, and attention."""
DISTINCT = 400
"""Different JPEGs in the shards."""
PER_SHARD = 1000


def prepare(options: argparse.Namespace) -> None:
    import torch
    import transformers

    shutil.rmtree(options.work, ignore_errors=True)
    (options.work / "shards").mkdir(parents=True)
    torch.manual_seed(0)
    config = transformers.CLIPVisionConfig(**(TINY if options.tiny else VIT_L_14), image_size=224, projection_dim=768)
    transformers.CLIPVisionModelWithProjection(config).half().save_pretrained(options.work / "clip")
    cores = os.cpu_count() or 1
    with multiprocessing.get_context("spawn").Pool(cores) as pool:
        jpegs = pool.map(jpeg, range(DISTINCT))
        shards = range(max(1, options.images // PER_SHARD))
        pool.starmap(_shard, [(options.work / "shards", number, jpegs) for number in shards])
    print(f"{len(shards) * PER_SHARD:,} images of {np.mean([len(one) for one in jpegs]) / 1e3:.0f} kB on average")


def jpeg(seed: int) -> bytes:
    """A JPEG of 500 x 375 pixels of about the size of a photograph's."""
    from PIL import Image

    draw = np.random.default_rng(seed)
    coarse = draw.integers(0, 256, (12, 16, 3), dtype=np.uint8)
    pixels = np.asarray(Image.fromarray(coarse).resize((500, 375), Image.Resampling.BICUBIC)).astype(np.int16)
    fine = np.asarray(Image.fromarray(draw.integers(0, 256, (94, 125), dtype=np.uint8)).resize((500, 375)))
    pixels += ((fine.astype(np.int16) - 128) // 4)[:, :, None]
    with io.BytesIO() as file:
        Image.fromarray(np.clip(pixels, 0, 255).astype(np.uint8)).save(file, "JPEG", quality=90)
        return file.getvalue()


def _shard(folder: Path, number: int, jpegs: list[bytes]) -> None:
    draw = random.Random(number)
    with tarfile.open(folder / f"{number:05}.tar", "w") as tar:
        for k in range(PER_SHARD):
            data = draw.choice(jpegs)
            entry = tarfile.TarInfo(f"{number:05}{k:04}.jpg")
            entry.size = len(data)
            tar.addfile(entry, io.BytesIO(data))


def model(options: argparse.Namespace) -> None:
    import torch

    from gristmill.models.checkpoint import Checkpoint
    from gristmill.models.vision.loading import VisionSpec, load

    device = "cpu" if options.no_gpu else "cuda"
    for precision in options.precisions:
        for compiled in (True, False) if options.eager else (True,):
            spec = VisionSpec(Checkpoint(str(options.work / "clip")), precision, compiled)
            loaded = load(spec, device)
            for batch in options.batch:
                pixels = np.random.default_rng(0).integers(0, 256, (batch * 8, 224, 224, 3), dtype=np.uint8)
                engine = RowEngine(loaded, batch)
                start = time.perf_counter()
                engine.run(Items([pixels[:batch]]))
                first = time.perf_counter() - start
                asyncio.run(_several(engine, Items([pixels]), options.seconds / 5))
                speed = asyncio.run(_several(engine, Items([pixels]), options.seconds))
                engine.close()
                memory = 0.0 if options.no_gpu else torch.cuda.max_memory_reserved() / 2**30
                print(
                    f"{precision}, {'compiled' if compiled else 'eager'}, batches of {batch}: {speed:,.0f} images/s, "
                    f"{speed * GFLOP / 1000:,.0f} TFLOP/s, first batch {first:.1f} s, {memory:.1f} GB",
                    flush=True,
                )
                if options.profile:
                    _profile(engine, Items([pixels]))


def _profile(engine: RowEngine, items: Items) -> None:
    """Print the kernels of a few batches."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CUDA]) as found:
        engine.run(items)
    rows = sorted(found.key_averages(), key=lambda one: -one.self_device_time_total)
    total = sum(one.self_device_time_total for one in rows)
    print(f"    kernels of {len(items):,} images: {total / 1e3:.1f} ms")
    for one in rows[:16]:
        print(f"    {one.self_device_time_total / total:6.1%} {one.count:5d} {one.key[:110]}")
    sys.stdout.flush()


async def _several(engine: RowEngine, items: Items, seconds: float) -> float:
    """Images per second with three tasks in flight, as in a worker."""
    start = time.perf_counter()

    async def one() -> int:
        count = 0
        while time.perf_counter() - start < seconds:
            count += len(await engine.begin_async().run(items))
        return count

    images = sum(await asyncio.gather(one(), one(), one()))
    return images / (time.perf_counter() - start)


class Progress:
    """Counts images in the folder of an output as it grows."""

    def __init__(self, total: int) -> None:
        self.total = total
        self.seen: list[tuple[float, int]] = []

    def note(self, images: int) -> None:
        self.seen.append((time.time(), images))

    def between(self) -> tuple[float, float, float]:
        """When the first fifth and the last twentieth were passed, and images per second between."""
        start = next(one for one in self.seen if one[1] >= self.total * 0.2)
        end = next((one for one in self.seen if one[1] >= self.total * 0.95), self.seen[-1])
        return start[0], end[0], (end[1] - start[1]) / max(end[0] - start[0], 1e-9)


def run(options: argparse.Namespace, embed: bool) -> None:
    from gristmill import LocalExecutor, Pipeline
    from gristmill.stages.image.embedders import ImageEmbeddingStage
    from gristmill.stages.image.io.reader.images import ImageReader
    from gristmill.text import ParquetWriter

    output = options.work / ("output" if embed else "output-decoded")
    shutil.rmtree(output, ignore_errors=True)
    share = 0 if options.no_gpu else 1 / options.workers
    stage: Any = ImageEmbeddingStage(
        model=str(options.work / "clip"),
        model_inference_batch_size=options.batch[0],
        num_gpus_per_worker=share,
        remove_image_data=True,
    )
    inner = stage.flatten()
    stages = [stage.with_({inner[1].name: {"num_workers": options.workers}})] if embed else [inner[0], DropPixels()]
    writer = ParquetWriter(str(output), fields=["image_id", "embedding"] if embed else ["image_id"])
    shards = len(list((options.work / "shards").iterdir()))
    reader = ImageReader(str(options.work / "shards"), files_per_partition=1)
    pipeline = Pipeline("clip", stages=[reader, *stages, writer])
    gpu = GpuSamples()
    if not options.no_gpu:
        gpu.start()
    progress = Progress(shards * PER_SHARD)
    done = threading.Event()
    watcher = threading.Thread(target=_watch, args=(output, progress, done), daemon=True)
    watcher.start()
    start = time.time()
    result = pipeline.run(LocalExecutor(config={"view": "off", "num_gpus": 0 if options.no_gpu else 1}))
    seconds = time.time() - start
    done.set()
    watcher.join()
    begin, end, speed = progress.between()
    print(result.summary())
    print(
        f"{'pipeline' if embed else 'decode'}: {speed:,.0f} images/s ({end - begin:.1f} s); whole run {seconds:.1f} s"
    )
    busy = [sample[1] for sample in gpu.samples if begin <= sample[0] <= end]
    if busy and embed:
        full = np.mean([one >= 99 for one in busy])
        print(
            f"GPU busy {np.mean(busy):.1f} % of the time between, at 99 % or more in {full:.0%} of {len(busy)} samples"
        )


def _watch(folder: Path, progress: Progress, done: threading.Event) -> None:
    """Note the images in finished files, twenty times a second."""
    import pyarrow.parquet as pq

    rows: dict[str, int] = {}
    is_last = False
    while not is_last:
        is_last = done.wait(0.05)
        for path in folder.glob("*.parquet"):
            if path.name not in rows:
                rows[path.name] = pq.read_metadata(path).num_rows
        progress.note(sum(rows.values()))


class DropPixels(ProcessingStage[DocumentBatch, DocumentBatch]):
    """Removes the column of pixels, after it was made."""

    def process(self, task: DocumentBatch) -> DocumentBatch:
        task.data = task.data.drop_columns([PIXELS, "image"])
        return task


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=["prepare", "model", "decode", "pipeline"])
    parser.add_argument("work", type=Path)
    parser.add_argument("--images", type=int, default=200_000)
    parser.add_argument("--batch", type=int, nargs="+", default=[256])
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--precisions", nargs="+", default=["float16"], choices=["float16", "bfloat16"])
    parser.add_argument("--eager", action="store_true", help="also the model that is not compiled")
    parser.add_argument("--profile", action="store_true", help="print the kernels that take the time of the model")
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--no-gpu", action="store_true")
    options = parser.parse_args()
    if options.part == "prepare":
        prepare(options)
    elif options.part == "model":
        model(options)
    else:
        run(options, options.part == "pipeline")


if __name__ == "__main__":
    main()
