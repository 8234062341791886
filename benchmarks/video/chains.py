"""The pipelines that speed.py and memory.py measure: each runs in a process of its own.

    python benchmarks/video/chains.py shots INPUT OUT       # TransNetV2, H.264, motion, EfficientNet-Lite0, files
    python benchmarks/video/chains.py stride INPUT OUT      # clips of 10 s, VP9, motion, files
    python benchmarks/video/chains.py long INPUT OUT        # clips of --length s every --stride s, H.264, files
    CURATOR/bin/python benchmarks/video/chains.py curator INPUT OUT    # `stride` with the stages of NeMo Curator

The last line that is printed is JSON: clips made, kept and dropped, and the run's own figure of peak memory.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

CLIP_S, LEAST_S = 10.0, 2.0


def shots(args: argparse.Namespace) -> dict[str, Any]:
    """Shots of 2 to 10 s, as plain.py makes them."""
    from gristmill.stages.video.embedding import ClipEmbeddingStage
    from gristmill.video import (
        ClipTranscodingStage,
        MotionFilterStage,
        MotionVectorDecodeStage,
        TransNetV2ClipExtractionStage,
    )

    return _run(
        args,
        TransNetV2ClipExtractionStage(threshold=0.4, min_length_s=LEAST_S, max_length_s=CLIP_S, crop_s=0.5),
        ClipTranscodingStage(preset="fast", crf=23),
        MotionVectorDecodeStage(),
        MotionFilterStage(global_mean_threshold=0.0, per_patch_min_256_threshold=0.0),  # all clips are embedded
        ClipEmbeddingStage(target_fps=1.0, max_frames=8),
    )


def stride(args: argparse.Namespace) -> dict[str, Any]:
    """Clips of equal length as VP9, which has no motion vectors: frames are compared."""
    from gristmill.video import (
        ClipTranscodingStage,
        FixedStrideExtractorStage,
        MotionFilterStage,
        MotionVectorDecodeStage,
    )

    return _run(
        args,
        FixedStrideExtractorStage(CLIP_S, CLIP_S, LEAST_S),
        ClipTranscodingStage(encoder="libvpx-vp9", preset="5"),
        MotionVectorDecodeStage(),
        MotionFilterStage(),
    )


def long(args: argparse.Namespace) -> dict[str, Any]:
    """Clips of a long video, encoded or copied."""
    from gristmill.video import ClipTranscodingStage, FixedStrideExtractorStage

    return _run(
        args,
        FixedStrideExtractorStage(args.length, args.stride, 1.0),
        ClipTranscodingStage(preset="ultrafast", copy_if_possible=args.copy),
    )


def _run(args: argparse.Namespace, *stages: Any) -> dict[str, Any]:
    from gristmill import Pipeline
    from gristmill.backends.local import LocalExecutor
    from gristmill.video import ClipWriterStage, VideoReader

    pipeline = Pipeline("videos", stages=[VideoReader(args.input), *stages, ClipWriterStage(args.out)])
    config: dict[str, Any] = {"num_cpus": args.cpus, "view": "off", "ignore_failures": True}
    if args.budget_mb:
        config["object_store_memory"] = args.budget_mb * 1_000_000
    executor = LocalExecutor(config)
    result = pipeline.run(executor, profile_store=False)
    assert result.ledger is not None and not result.ledger.problems
    total = result.ledger.total()
    return {
        "clips": total.documents + total.made - total.errored.total(),
        "kept": total.kept,
        "dropped": total.dropped.total(),
        "errored": total.errored.total(),
        "memory": result.record.peak_memory_bytes,
        "in_flight": result.record.peak_bytes_in_flight,
        "budget": result.record.budget_bytes,
    }


def curator(args: argparse.Namespace) -> dict[str, Any]:
    """The stages of NeMo Curator one after another in this process, without an executor: its best case.

    They need ffmpeg and ffprobe on the path. TransNetV2 and Cosmos-Embed1 call CUDA, and cannot run here.
    """
    from nemo_curator.stages.video.clipping.clip_extraction_stages import (
        ClipTranscodingStage,
        FixedStrideExtractorStage,
    )
    from nemo_curator.stages.video.filtering.motion_filter import MotionFilterStage, MotionVectorDecodeStage
    from nemo_curator.stages.video.io.clip_writer import ClipWriterStage
    from nemo_curator.stages.video.io.video_reader import VideoReaderStage
    from nemo_curator.tasks.file_group import FileGroupTask

    writer = ClipWriterStage(args.out, args.input, True, False, False, False, False)
    stages = [
        VideoReaderStage(),
        FixedStrideExtractorStage(clip_len_s=CLIP_S, clip_stride_s=CLIP_S, min_clip_length_s=LEAST_S, limit_clips=0),
        ClipTranscodingStage(encoder="libvpx-vp9", encoder_threads=args.cpus, num_cpus_per_worker=args.cpus),
        MotionVectorDecodeStage(num_cpus_per_worker=args.cpus),
        MotionFilterStage(),
        writer,
    ]
    for stage in stages:
        stage.setup()
    counts = {"clips": 0, "kept": 0, "dropped": 0, "errored": 0}
    for path in sorted(Path(args.input).iterdir()):
        tasks: list[Any] = [FileGroupTask(dataset_name="videos", data=[str(path)])]
        for stage in stages:
            tasks = [made for task in tasks for made in _as_list(stage.process(task))]
        for task in tasks:
            counts["kept"] += len(task.data.clips)
            counts["dropped"] += len(task.data.filtered_clips)
        counts["errored"] += not any(len(task.data.clips) + len(task.data.filtered_clips) for task in tasks)
    counts["clips"] = counts["kept"] + counts["dropped"]
    return counts


def _as_list(made: Any) -> list[Any]:
    return made if isinstance(made, list) else [] if made is None else [made]


CHAINS: dict[str, Callable[[argparse.Namespace], dict[str, Any]]] = {
    "shots": shots,
    "stride": stride,
    "long": long,
    "curator": curator,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("chain", choices=CHAINS)
    parser.add_argument("input")
    parser.add_argument("out")
    parser.add_argument("--cpus", type=int, default=2)
    parser.add_argument("--length", type=float, default=CLIP_S)
    parser.add_argument("--stride", type=float, default=CLIP_S)
    parser.add_argument("--copy", action="store_true", help="copy packets where that is possible")
    parser.add_argument("--budget-mb", type=int, help="the budget of data in flight")
    args = parser.parse_args()
    began = time.perf_counter()
    found = CHAINS[args.chain](args)
    print(json.dumps({**found, "work_s": time.perf_counter() - began}))


if __name__ == "__main__":
    main()
