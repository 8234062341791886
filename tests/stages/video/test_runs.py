"""Whole runs from videos to files of clips: any number of workers, and bad videos."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("av")

from tests.ledger.conftest import written
from tests.videos.made import encoded, panned, still
from tests.videos.test_probe import bad_videos

from gristmill.backends.local import LocalExecutor
from gristmill.cli.main import main
from gristmill.pipeline import Pipeline
from gristmill.stages.core import ProcessingStage
from gristmill.video import (
    ClipTranscodingStage,
    ClipWriterStage,
    FixedStrideExtractorStage,
    MotionFilterStage,
    MotionVectorDecodeStage,
    VideoReader,
)

FPS, SIDE = 10, 48
QUIET = {"view": "off"}


def make_input(folder: Path, count: int = 6) -> Path:
    """Videos of 2 to 4 s; nothing moves in the last second of every second one."""
    folder.mkdir(parents=True)
    for number in range(count):
        frames = [*panned(number, (2 + number % 2) * FPS, 2.0, 2 * SIDE, SIDE)]
        if number % 2:
            frames += still(number, FPS, 2 * SIDE, SIDE)
        (folder / f"{number}.mp4").write_bytes(encoded(frames, fps=FPS, options={"preset": "ultrafast"}))
    return folder


def curate(source: Path, out: Path, *stages: ProcessingStage[Any, Any], stride: Any = None) -> Pipeline:
    """Clips of a second; those in which nothing moves are dropped."""
    return Pipeline(
        "curate",
        stages=[
            VideoReader(str(source), blocksize=1),
            stride or FixedStrideExtractorStage(1.0, 1.0, 0.5),
            *stages,
            ClipTranscodingStage(preset="ultrafast"),
            MotionVectorDecodeStage(),
            MotionFilterStage(),
            ClipWriterStage(str(out)),
        ],
    )


def run(pipeline: Pipeline, **options: Any) -> Any:
    return pipeline.run(LocalExecutor(config={**QUIET, **options}))


def balanced(result: Any) -> Any:
    """The total of a ledger that is right for each source."""
    assert result.ledger is not None and not result.ledger.problems
    assert all(account.balances for account in result.ledger.files.values())
    return result.ledger.total()


def test_the_clips_do_not_depend_on_workers(tmp_path: Path) -> None:
    source = make_input(tmp_path / "in")
    for workers in (1, 4):
        total = balanced(run(curate(source, tmp_path / str(workers)), num_cpus=workers))
        assert (total.read.total(), total.made, total.kept) == (6, 12, 15)
        assert total.dropped.total() == 3
    assert written(tmp_path / "1") == written(tmp_path / "4")
    assert len(list((tmp_path / "1" / "clips").iterdir())) == 15
    assert main(["verify", str(tmp_path / "1")]) == 0


def test_each_bad_video_costs_that_video(tmp_path: Path) -> None:
    source = make_input(tmp_path / "in", 2)
    expected: dict[str, int] = {}
    for name, (data, reason) in bad_videos().items():
        (source / f"bad {name}.mp4").write_bytes(data)
        expected[reason] = expected.get(reason, 0) + 1
    whole = (source / "1.mp4").read_bytes()
    (source / "one frame.mp4").write_bytes(encoded([*panned(9, 1, 1.0, 2 * SIDE, SIDE)], fps=FPS))
    (source / "two thirds.mp4").write_bytes(whole[: 2 * len(whole) // 3])
    expected["truncated"] += 1
    result = run(curate(source, tmp_path / "out"), num_cpus=2)
    total = balanced(result)
    assert dict(total.errored) == expected
    assert {reason for _, reason, *_ in total.dropped} >= {"too short"}, "of the video with one frame"
    good = make_input(tmp_path / "good", 2)
    run(curate(good, tmp_path / "alone"))
    clips = {path.name.partition(".mp4")[0][-14:] for path in (tmp_path / "out" / "clips").iterdir()}
    assert len(clips) == len(list((tmp_path / "alone" / "clips").iterdir())) == 5
