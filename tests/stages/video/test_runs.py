"""Whole runs over videos: the same clips for any number of workers, bad videos, decoders that hang or crash, kills."""

from __future__ import annotations

import json
import os
import random
import secrets
import signal
import subprocess
import sys
import time
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
from gristmill.tasks.video import VideoTask
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


class Unlucky(FixedStrideExtractorStage):
    """A decoder that hangs in one video, or takes the process down with it."""

    failure = ""

    def process(self, task: VideoTask) -> Any:
        if "3.mp4" in task.data.column("video_id").to_pylist():
            if self.failure == "hangs":
                signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM, signal.SIGINT])
                time.sleep(10_000)
            os.kill(os.getpid(), signal.SIGSEGV)
        return super().process(task)


class Hangs(Unlucky):
    failure = "hangs"
    timeout_s = 6.0
    max_attempts = 1


class Crashes(Unlucky):
    failure = "crashes"


@pytest.mark.parametrize("stage", [Hangs, Crashes])
def test_a_decoder_that_hangs_or_crashes_costs_one_video(tmp_path: Path, stage: Any) -> None:
    source = make_input(tmp_path / "in")
    result = run(curate(source, tmp_path / "out", stride=stage(1.0, 1.0, 0.5)), num_cpus=2, ignore_failures=True)
    total = balanced(result)
    assert total.errored.total() == 1 and total.kept == 12
    assert not any("3_mp4" in path.name for path in (tmp_path / "out" / "clips").iterdir())


SCRIPT = """
import sys, time
from pathlib import Path
sys.path.insert(0, {tests!r})
from tests.stages.video.test_runs import *
from gristmill.stages.function_definitions import processing_stage

@processing_stage(name="slow")
def slow(task: VideoTask) -> VideoTask:
    time.sleep(0.05)
    return task

run(curate(Path(sys.argv[1]), Path(sys.argv[2]), slow), num_cpus=2)
"""


def test_a_driver_killed_at_any_moment_is_finished_by_the_next(tmp_path: Path) -> None:
    source = make_input(tmp_path / "in")
    script = tmp_path / "job.py"
    script.write_text(SCRIPT.format(tests=str(Path(__file__).parents[3])))
    command = [sys.executable, str(script), str(source)]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    subprocess.run([*command, str(tmp_path / "whole")], check=True, env=env)
    seed = secrets.randbits(32)
    print("seed", seed)
    rng = random.Random(seed)
    out, killed = tmp_path / "out", 0
    for _ in range(3):
        process = subprocess.Popen([*command, str(out)], env=env, stderr=subprocess.DEVNULL)
        enough = len(list(out.glob("part-*"))) + rng.randint(0, 3)
        while len(list(out.glob("part-*"))) < enough and process.poll() is None:
            time.sleep(0.005)
        time.sleep(rng.uniform(0, 0.1))
        process.send_signal(signal.SIGKILL)
        killed += process.wait() == -signal.SIGKILL
    assert killed
    subprocess.run([*command, str(out)], check=True, env=env)
    assert written(out) == written(tmp_path / "whole")
    ledgers = [json.loads((x / "_gristmill" / "ledger.json").read_text()) for x in (out, tmp_path / "whole")]
    assert ledgers[0]["total"] == ledgers[1]["total"]
    assert main(["verify", str(out)]) == 0
