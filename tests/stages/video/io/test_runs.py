"""Whole runs over videos: the same bytes for any number of workers, after kills, and when decoders hang or crash."""

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

import pyarrow.parquet as pq
import pytest

pytest.importorskip("av")

from tests.videos import corpus

from gristmill.backends.local import LocalExecutor
from gristmill.pipeline import Pipeline
from gristmill.stages.core import ProcessingStage
from gristmill.stages.deduplication.exact import ExactDeduplication
from gristmill.stages.text.io import ParquetWriter
from gristmill.stages.video.clipping import ClipTranscodingStage, FixedStrideExtractorStage
from gristmill.stages.video.io.reader import VideoReader
from gristmill.stages.video.rows import locations
from gristmill.tasks import VideoTask

SMALL = {"size": (64, 48), "fps": 10}


def make_input(folder: Path, count: int = 8) -> Path:
    """Videos of several formats and lengths, and some that cannot be read."""
    for n in range(count):
        codec, container = [("libx264", "mp4"), ("mpeg4", "avi"), ("libx264", "matroska")][n % 3]
        path = folder / f"{n % 2}" / f"{n:02}.{container.replace('matroska', 'mkv')}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(corpus.video(5 + 7 * n, codec, container=container, **SMALL))
    (folder / "0" / "empty.mp4").write_bytes(b"")
    (folder / "1" / "text.mp4").write_bytes(b"no video at all")
    (folder / "1" / "damaged.mp4").write_bytes(corpus.damaged(corpus.video(60, options={"crf": "5"}), 0.8))
    return folder


def curate(source: Path, out: Path, *stages: ProcessingStage) -> Pipeline:
    reader = VideoReader(str(source), files_per_partition=2)
    clips = [FixedStrideExtractorStage(1.0, 1.0, 0.6), ClipTranscodingStage(preset="ultrafast")]
    return Pipeline("curate", stages=[reader, *stages, *clips, ParquetWriter(str(out))])


def run(pipeline: Pipeline, **options: Any) -> Any:
    return pipeline.run(LocalExecutor(config={"view": "off", "num_cpus": 2, **options}))


def written(out: Path) -> dict[str, bytes]:
    found = (path for path in out.rglob("*") if path.is_file() and "_gristmill" not in path.parts)
    return {str(path.relative_to(out)): path.read_bytes() for path in found}


def clips(out: Path) -> list[dict[str, Any]]:
    return [row for path in sorted(out.glob("part-*")) for row in pq.read_table(path).to_pylist()]


@pytest.fixture(scope="module")
def source(tmp_path_factory) -> Path:
    return make_input(tmp_path_factory.mktemp("videos"))


def test_the_bytes_do_not_depend_on_workers(source, tmp_path):
    for workers in (1, 2, 4):
        result = run(curate(source, tmp_path / str(workers)), num_cpus=workers)
        assert all(account.balances for account in result.ledger.files.values()) and not result.ledger.problems
    assert written(tmp_path / "1") == written(tmp_path / "2") == written(tmp_path / "4")
    total = result.ledger.total()
    assert total.documents == 11 and total.made > 10 and total.kept == len(clips(tmp_path / "4")) > 15
    assert dict(total.errored) == {"empty": 1, "not a video of a known format": 1, "damaged": total.errored["damaged"]}
    assert dict(total.dropped) == {("FixedStrideExtractorStage", "too short"): 1}
    assert total.documents + total.made == total.kept + total.errored.total() + total.dropped.total()


class AsUsersWrite(ProcessingStage[VideoTask, VideoTask]):
    """A stage of a user that takes and returns videos."""

    def process(self, task: VideoTask) -> VideoTask:
        assert type(task) is VideoTask
        return task


def test_clips_pass_a_barrier_and_stay_clips(source, tmp_path):
    stages = [ExactDeduplication(text_field="video_codec"), AsUsersWrite()]
    reader = VideoReader(str(source), files_per_partition=2)
    after = [FixedStrideExtractorStage(1.0, 1.0, 0.6), ClipTranscodingStage(preset="ultrafast")]
    result = run(Pipeline("once", stages=[reader, *stages, *after, ParquetWriter(str(tmp_path / "out"))]))
    assert not result.ledger.problems
    assert {row["video_codec"] for row in clips(tmp_path / "out")} <= {"h264", "mpeg4"}
    assert all(row["clip"][4:8] == b"ftyp" for row in clips(tmp_path / "out"))


SCRIPT = """
import sys, time
from pathlib import Path
sys.path.insert(0, {tests!r})
from tests.stages.video.io.test_runs import *
from gristmill.stages.function_definitions import processing_stage

@processing_stage(name="slow")
def slow(task: VideoTask) -> VideoTask:
    time.sleep(0.02)
    return task

run(curate(Path(sys.argv[1]), Path(sys.argv[2]), slow))
"""


def test_a_driver_killed_at_any_moment_is_finished_by_the_next(source, tmp_path):
    script = tmp_path / "job.py"
    script.write_text(SCRIPT.format(tests=str(Path(__file__).parents[4])))
    command = [sys.executable, str(script), str(source)]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    subprocess.run([*command, str(tmp_path / "whole")], check=True, env=env)
    seed = secrets.randbits(32)
    print("seed", seed)
    rng = random.Random(seed)
    out, killed = tmp_path / "out", 0
    for _ in range(2):
        process = subprocess.Popen([*command, str(out)], env=env, stderr=subprocess.DEVNULL)
        enough = len(list(out.glob("part-*"))) + rng.randint(0, 5)
        while len(list(out.glob("part-*"))) < enough and process.poll() is None:
            time.sleep(0.005)
        process.send_signal(signal.SIGKILL)
        killed += process.wait() == -signal.SIGKILL
    assert killed
    subprocess.run([*command, str(out)], check=True, env=env)
    assert written(out) == written(tmp_path / "whole")
    ledgers = [json.loads((x / "_gristmill" / "ledger.json").read_text()) for x in (out, tmp_path / "whole")]
    assert [x["total"] for x in ledgers] == [ledgers[0]["total"]] * 2


class BadDecoder(ClipTranscodingStage):
    """Crashes, or hangs, at the videos whose names begin so."""

    def process(self, task: VideoTask) -> Any:
        for path in locations(task):
            if os.path.basename(path).startswith("crash"):
                os.kill(os.getpid(), signal.SIGSEGV)
            while os.path.basename(path).startswith("hang"):
                time.sleep(0.1)
        yield from super().process(task)


def test_a_decoder_that_hangs_or_crashes_costs_one_video(tmp_path):
    data = corpus.video(10, **SMALL)
    for name in ("a.mp4", "crash.mp4", "b.mp4", "hang.mp4", "c.mp4", "d.mp4"):
        (tmp_path / "in").mkdir(exist_ok=True)
        (tmp_path / "in" / name).write_bytes(data)
    stages = [VideoReader(str(tmp_path / "in")), BadDecoder(preset="ultrafast").with_(timeout_s=2.0, max_attempts=1)]
    pipeline = Pipeline("odd", stages=[*stages, ParquetWriter(str(tmp_path / "out"))])
    result = run(pipeline, ignore_failures=True)
    assert sorted(row["video_id"] for row in clips(tmp_path / "out")) == ["a.mp4", "b.mp4", "c.mp4", "d.mp4"]
    found = [json.loads(line) for path in (tmp_path / "out/quarantine").glob("*") for line in path.open()]
    reasons = {os.path.basename(one["file"]): one["reason"] for one in found}
    assert set(reasons) == {"crash.mp4", "hang.mp4"}
    assert "SIGSEGV" in reasons["crash.mp4"] and "timed out" in reasons["hang.mp4"], reasons
    total = result.ledger.total()
    assert (total.documents, total.kept, total.errored.total()) == (6, 4, 2) and not result.ledger.problems
