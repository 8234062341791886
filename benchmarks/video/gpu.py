"""The models of videos on one GPU: each alone, and a whole pipeline with the balancer, against the simulator.

    python benchmarks/video/gpu.py WORK [--limit 440] [--summary FILE] [--transnetv2 FOLDER]
    python benchmarks/video/gpu.py WORK --tiny --no-gpu      # small models on CPUs, to try it

- `shots`: TransNetV2, windows of 100 frames; 32 and 16 bits, and whether the cuts are those of the CPU.
- `cosmos`: Cosmos-Embed1 of the true size with random weights, 8 frames of 336 x 336.
- `captions`: a model with the shape of Qwen2.5-VL-7B and random weights; 10 s clips, 100 tokens each.
- `pipeline`: read, split, encode, embed, caption and write made films of 640 x 360 with the local executor. After it
  comes a simulation from what the run measured and, if there is time, a forecast from a sample (`gristmill plan`).

Each part is a process of its own. Figures are clips per second and how busy the GPU was, as NVML says, between the
first and the last work. The summary is written after each part, so that a run that is stopped leaves what it has. Rates
to compare are those of one worker in the example of NeMo Curator's documentation: 2 (shots), 4 (embeddings) and 0.5
(captions) clips/s; its nightly gates on 8 GPUs are 12 (embeddings), 0.7 to 0.85 (captions) and 0.65 to 0.75 (all).
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
from gpu_models import RandomCaptions, RandomCosmos, make_folders, make_video

PARTS = ("shots", "cosmos", "captions", "pipeline")
SHARE_OF_LIMIT = {"shots": 0.14, "cosmos": 0.16, "captions": 0.18, "pipeline": 0.52}
CLIP_S = 10
FPS = 24


class Busy(threading.Thread):
    """What NVML says of GPU 0, ten times a second."""

    def __init__(self, is_on: bool) -> None:
        super().__init__(daemon=True)
        self.samples: list[tuple[float, int, int]] = []
        if is_on:
            self.start()

    def run(self) -> None:
        import pynvml as nvml

        nvml.nvmlInit()
        gpu = nvml.nvmlDeviceGetHandleByIndex(0)
        while True:
            used = nvml.nvmlDeviceGetMemoryInfo(gpu).used
            self.samples.append((time.monotonic(), nvml.nvmlDeviceGetUtilizationRates(gpu).gpu, used))
            time.sleep(0.1)

    def share(self, since: float, until: float) -> float | None:
        """How busy it was, from 0 to 1; None without NVML."""
        found = [busy for at, busy, _ in self.samples if since <= at <= until]
        return fmean(found) / 100 if found else None

    def memory_gb(self) -> float:
        return max((used for *_, used in self.samples), default=0) / 2**30


def repeated(work: Callable[[], int], seconds: float, busy: Busy) -> dict[str, Any]:
    """Repeat some work, which returns how many items it did, for a time."""
    work()
    began = time.monotonic()
    done = 0
    while time.monotonic() - began < seconds:
        done += work()
    ended = time.monotonic()
    return {"per_s": done / (ended - began), "busy": busy.share(began, ended)}


def save(options: argparse.Namespace, part: str, figures: dict[str, Any]) -> None:
    """Keep the figures of a part so far: it may be stopped."""
    print(json.dumps(figures), flush=True)
    (options.work / f"{part}.json").write_text(json.dumps(figures))


def frames_done(detector: Any, windows: Any) -> int:
    """Compute windows. Return the frames that got a probability."""
    return 50 * len(detector.predict(windows))


def embedded(engine: Any, clips: Any) -> int:
    from gristmill.models.vision.rows import Items

    return len(engine.run(Items([clips])))


def captioned(captioner: Any, windows: Any) -> int:
    return len(captioner.captions(windows))


def shots(options: argparse.Namespace) -> dict[str, Any]:
    from gristmill.models.checkpoint import Checkpoint
    from gristmill.models.video.transnetv2 import MODEL, TransNetV2, TransNetV2Spec, cuts, windows_of

    busy = Busy(not options.no_gpu)
    checkpoint = Checkpoint(options.transnetv2 or MODEL)
    draw = np.random.default_rng(0)
    coarse = [draw.integers(0, 256, (9, 16, 3), dtype=np.uint8) for _ in range(9)]
    scenes = [np.kron(one, np.ones((3, 3, 1), np.uint8)) for one in coarse]
    frames = np.concatenate([np.stack([np.roll(one, n // 4, 1) for n in range(37)]) for one in scenes])
    reference = TransNetV2(TransNetV2Spec(checkpoint).load("cpu"))
    expected = reference.of_frames(frames)
    found: dict[str, Any] = {"cuts_cpu": len(cuts(expected))}
    if options.no_gpu:
        windows = next(windows_of([frames], 2)).copy()
        found["cpu"] = repeated(partial(frames_done, reference, windows), 2, busy)
        return found
    for precision, batch, compiled in (
        ("float32", 8, False),
        ("float16", 8, False),
        ("float16", 32, False),
        ("float16", 128, False),
        ("float16", 32, True),
    ):
        detector = TransNetV2(TransNetV2Spec(checkpoint, precision, compiled).load("cuda"), batch)
        name = f"{precision}{' compiled' if compiled else ''}, {batch} windows"
        got = detector.of_frames(frames)
        windows = np.concatenate([one.copy() for one in windows_of([frames] * 8 * (1 + batch // 16), batch)])
        speed = repeated(partial(frames_done, detector, windows[: 4 * batch]), 2, busy)
        speed["clips_per_s"] = speed["per_s"] / (CLIP_S * FPS)
        speed["same_cuts"] = cuts(got) == cuts(expected)
        speed["largest_difference"] = float(np.abs(got - expected).max())
        found[name] = speed
        save(options, "shots", found)
    return found


def cosmos(options: argparse.Namespace) -> dict[str, Any]:
    from gristmill.models.vision.rows import RowEngine

    busy = Busy(not options.no_gpu)
    found: dict[str, Any] = {}
    device = "cpu" if options.no_gpu else "cuda"
    for batch, compiled in ((8, False), (32, False), (32, True)) if device == "cuda" else ((2, False),):
        stage = RandomCosmos(model=str(options.work / "cosmos"), torch_compile=compiled)
        began = time.monotonic()
        engine = RowEngine(stage.load(device), batch, "clip")
        engine.warm_up(*stage.item())
        clips = np.random.default_rng(0).integers(0, 256, (4 * batch, *stage.item()[0]), dtype=np.uint8)
        ready = time.monotonic() - began
        name = f"{'compiled, ' if compiled else ''}{batch} clips"
        found[name] = repeated(partial(embedded, engine, clips), 3, busy)
        found[name] |= {"ready_s": ready, "memory_gb": busy.memory_gb()}
        save(options, "cosmos", found)
    return found


def captions(options: argparse.Namespace) -> dict[str, Any]:
    from gristmill.models.video.captioner import Window

    busy = Busy(not options.no_gpu)
    found: dict[str, Any] = {}
    device = "cpu" if options.no_gpu else "cuda"
    began = time.monotonic()
    stage = RandomCaptions(model=str(options.work / "qwen"), max_output_tokens=options.tokens, engine="transformers")
    stage.load(device, 1.0)
    found["ready_s"] = time.monotonic() - began
    height, width = stage.spec.format.size(*((56, 56) if options.tiny else (360, 640)), least=28 * 28)
    frames = np.random.default_rng(0).integers(0, 256, (20, height, width, 3), dtype=np.uint8)
    window = Window(frames, 2.0, "describe the video in detail")
    deadline = time.monotonic() + options.part_limit - 40
    for batch in (2,) if options.tiny else (16, 32, 64):
        if time.monotonic() > deadline:
            break
        captioner: Any = stage._captioner
        captioner.size = batch
        found[f"{batch} clips"] = repeated(partial(captioned, captioner, [window] * batch), 8, busy)
        found[f"{batch} clips"] |= {"memory_gb": busy.memory_gb(), "tokens": len(captioner.prompt(window).ids)}
        save(options, "captions", found)
    return found


def pipeline(options: argparse.Namespace) -> dict[str, Any]:
    from gristmill import LocalExecutor
    from gristmill.scheduling.simulator.simulation import simulate

    began = time.monotonic()
    films = options.work / "films"
    count = videos(options, films)
    found: dict[str, Any] = {"films": count, "films_s": time.monotonic() - began}
    config: dict[str, Any] = {"view": "off"}
    if options.no_gpu:
        config |= {"num_cpus": os.cpu_count()}
    busy = Busy(not options.no_gpu)
    output = options.work / "output"
    shutil.rmtree(output, ignore_errors=True)
    at = time.monotonic()
    result = stages(options, films, output).run(LocalExecutor(config), profile_store=False)
    total = time.monotonic() - at
    print(result.summary())
    record = result.record
    assert record.last_output_s is not None and result.ledger is not None
    clips = len(list((output / "clips").iterdir()))
    written = sorted(path.stat().st_mtime for path in (output / "clips").iterdir())
    steady = clips / max(1e-9, written[-1] - written[0])
    real = record.last_output_s - record.loaded_s
    load = result.load()
    simulated = [simulate(load, seed).makespan_s for seed in range(1, 6)]
    found |= {
        "clips": clips,
        "run_s": real,
        "with_start_s": total,
        "clips_per_s": clips / real,
        "steady_clips_per_s": steady,
        "busy": busy.share(at, time.monotonic()),
        "busy_steady": busy.share(at + total - (written[-1] - written[0]), at + total),
        "memory_gb": busy.memory_gb(),
        "simulated_s": fmean(simulated),
        "simulated_deviation": fmean(simulated) / real - 1,
        "steps": {
            one.name: {"busy": one.busy_share, "workers": max(n for _, n in one.workers)} for one in record.steps
        },
        "problems": list(map(str, result.ledger.problems)),
    }
    load.write(options.work / "pipeline.load.json")
    save(options, "pipeline", found)
    if not options.no_plan and options.part_limit - (time.monotonic() - began) > 0.7 * total + 40:
        found |= forecast(options, films, real, config)
    return found


def forecast(options: argparse.Namespace, films: Path, real: float, config: dict[str, Any]) -> dict[str, Any]:
    """What the planner says of the run after a sample."""
    from gristmill.capacity.plan import PlanRequest, plan_capacity
    from gristmill.capacity.sampling import SampleLimits

    at = time.monotonic()
    try:
        sampled = stages(options, films, options.work / "sampled")
        request = PlanRequest(limits=SampleLimits(options.sample), store=False)
        plan = plan_capacity(sampled, request, None, config)
    except Exception as error:  # the run was measured all the same
        return {"forecast_error": f"{type(error).__name__}: {error}"[:300]}
    expected = sum(plan.prediction.phases_s)
    return {
        "forecast_s": expected,
        "forecast_low_s": plan.prediction.low_s,
        "forecast_high_s": plan.prediction.high_s,
        "forecast_deviation": expected / real - 1,
        "sample_s": time.monotonic() - at,
    }


def videos(options: argparse.Namespace, folder: Path) -> int:
    """Make films, one for each core at a time."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    size = (90, 160) if options.tiny else (360, 640)
    jobs = [(folder / f"{n:03d}.mp4", n, options.film_s, *size, FPS) for n in range(options.films)]
    with multiprocessing.get_context("spawn").Pool(min(len(jobs), os.cpu_count() or 1)) as pool:
        print(sum(pool.starmap(make_video, jobs)), "shots", flush=True)
    return len(jobs)


def stages(options: argparse.Namespace, films: Path, output: Path) -> Any:
    """The whole chain."""
    from gristmill import Pipeline
    from gristmill.models.video.transnetv2 import MODEL
    from gristmill.stages.video.caption import CaptionPreparationStage
    from gristmill.stages.video.embedding import CosmosEmbed1FrameCreationStage
    from gristmill.video import (
        ClipTranscodingStage,
        ClipWriterStage,
        TransNetV2ClipExtractionStage,
        VideoFrameExtractionStage,
        VideoReader,
    )

    qwen, embedder = str(options.work / "qwen"), str(options.work / "cosmos")
    small = {"max_frame_pixels": 28 * 28 * 16} if options.tiny else {}
    return Pipeline(
        "video",
        stages=[
            VideoReader(str(films), files_per_partition=1),
            VideoFrameExtractionStage(),
            TransNetV2ClipExtractionStage(model=options.transnetv2 or MODEL, gpu_memory_gb=6),
            ClipTranscodingStage(preset="veryfast"),
            CosmosEmbed1FrameCreationStage(model=embedder),
            RandomCosmos(model=embedder, gpu_memory_gb=16, torch_compile=False),
            CaptionPreparationStage(model=qwen, prompt_text="describe the video in detail", **small),
            RandomCaptions(
                model=qwen,
                gpus=options.caption_gpus,
                caption_batch_size=2 if options.tiny else options.batch,
                max_output_tokens=options.tokens,
                engine="transformers",
            ),
            ClipWriterStage(str(output)),
        ],
    )


def table(found: dict[str, Any]) -> str:
    """The figures as lines."""
    lines = []
    for part, figures in found.items():
        lines.append(f"{part}:")
        for name, value in figures.items():
            if isinstance(value, dict):
                value = ", ".join(f"{key} {_short(one)}" for key, one in value.items())
            lines.append(f"  {name}: {_short(value)}")
    return "\n".join(lines) + "\n"


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("work", type=Path)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--limit", type=float, default=440, help="seconds for everything")
    parser.add_argument("--summary", type=Path, help="default: WORK/summary.txt; the figures as JSON are beside it")
    parser.add_argument("--transnetv2", help="a folder with the weights; default: the package")
    parser.add_argument("--tiny", action="store_true", help="small models and films")
    parser.add_argument("--no-gpu", action="store_true", help="CPUs compute")
    parser.add_argument("--no-plan", action="store_true", help="no forecast from a sample")
    parser.add_argument("--sample", type=float, default=0.1)
    parser.add_argument("--films", type=int, default=32)
    parser.add_argument("--film-s", type=float, default=60)
    parser.add_argument("--tokens", type=int, default=100)
    parser.add_argument("--batch", type=int, default=32, help="windows that the captioner computes together")
    parser.add_argument("--caption-gpus", type=float, default=0.6)
    parser.add_argument("--part-limit", type=float, default=0, help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.work = options.work.resolve()
    options.work.mkdir(parents=True, exist_ok=True)
    if options.part_limit:
        (part,) = options.parts
        save(
            options, part, {"shots": shots, "cosmos": cosmos, "captions": captions, "pipeline": pipeline}[part](options)
        )
        return
    began = time.monotonic()
    summary: Path = options.summary or options.work / "summary.txt"
    make_folders(options.work, options.tiny)
    found: dict[str, Any] = {}
    for part in options.parts:
        later = sum(SHARE_OF_LIMIT[one] for one in options.parts[options.parts.index(part) :])
        left = options.limit - (time.monotonic() - began)
        limit = max(1.0, left * SHARE_OF_LIMIT[part] / later)
        print(f"[{time.monotonic() - began:.0f} s] {part}, at most {limit:.0f} s", flush=True)
        found[part] = measured(part, options, limit)
        summary.write_text(table(found))
        summary.with_suffix(".json").write_text(json.dumps(found, indent=1))
    print(f"[{time.monotonic() - began:.0f} s]\n{summary.read_text()}")


def measured(part: str, options: argparse.Namespace, limit: float) -> dict[str, Any]:
    """Run a part in a process of its own. Return its figures, or why there are none."""
    result: Path = options.work / f"{part}.json"
    result.unlink(missing_ok=True)
    given = [one for one in sys.argv[1:] if one != "--parts" and one not in PARTS]
    command = [sys.executable, __file__, *given, "--parts", part, "--part-limit", str(limit)]
    log = options.work / f"{part}.log"
    with log.open("w") as out, subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT) as process:
        try:
            process.wait(limit)
        except subprocess.TimeoutExpired:
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
    if result.exists():
        found: dict[str, Any] = json.loads(result.read_text())
        return (
            found if process.returncode == 0 else found | {"stopped": process.returncode, "log": log.read_text()[-800:]}
        )
    return {"failed": f"status {process.returncode}", "log": log.read_text()[-1500:]}


if __name__ == "__main__":
    main()
