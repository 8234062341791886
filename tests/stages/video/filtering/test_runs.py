"""Filters of clips in a run: stored scores, other thresholds, explanations."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.stages.deduplication.in_process import InProcess
from tests.videos.made import blank, encoded, panned, still

from gristmill.cli.main import main
from gristmill.pipeline import Pipeline
from gristmill.scores.stored import StoredScores
from gristmill.text import ParquetReader, ScoreFilter
from gristmill.video import (
    BlankClipFilter,
    ClipLengthFilter,
    ClipWriterStage,
    MotionFilterStage,
    MotionVectorDecodeStage,
    StaticClipFilter,
)

CLIPS = {
    "walk": (4.0, list(panned(1, 12, 3.0, 64, 48))),
    "pan": (2.5, list(panned(2, 12, 2.0, 64, 48))),
    "slide": (3.0, list(still(3, 12, 64, 48))),
    "black": (3.0, list(blank(0, 12, 64, 48))),
    "short": (0.4, list(panned(4, 12, 2.0, 64, 48))),
}


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("clips")
    (folder / "in").mkdir()
    rows = [
        {
            "clip_id": f"film.mp4-{name}",
            "video": "/films/film.mp4",
            "video_id": "film.mp4",
            "start_s": 0.0,
            "end_s": length,
            "clip": encoded(frames, options={"preset": "veryfast"}),
        }
        for name, (length, frames) in CLIPS.items()
    ]
    pq.write_table(pa.Table.from_pylist(rows), folder / "in/0.parquet")
    rules = [ClipLengthFilter(1.0), BlankClipFilter()]
    stages = [
        ParquetReader(str(folder / "in"), text_field=None),
        ScoreFilter(rules, keep_scores=True),
        MotionVectorDecodeStage(),
        MotionFilterStage(),
        ScoreFilter(StaticClipFilter()).with_(name="static"),
    ]
    Pipeline("clips", stages=[*stages, ClipWriterStage(folder / "with bytes", excluded_clips=True)]).run(InProcess())
    result = Pipeline("clips", stages=[*stages, ClipWriterStage(folder / "out")]).run(InProcess())
    dropped = result.ledger.total().dropped
    assert dropped == {
        ("ScoreFilter", "too short"): 1,
        ("ScoreFilter", "blank_clip"): 1,
        ("MotionFilterStage", "motion"): 1,
    }
    return folder / "out"


def test_scores_of_clips_are_stored(out: Path) -> None:
    scores = StoredScores(str(out))
    [table] = [scores.table(file) for file in scores.files]
    assert len(table) == len(CLIPS)
    index = pq.read_table(out / "part-000000.parquet").to_pylist()
    assert [row["clip_id"] for row in index] == ["film.mp4-walk", "film.mp4-pan"]
    assert [row["clip_length_score"] for row in index] == [4.0, 2.5]
    assert all(row["motion_method"] == "vectors" and row["motion_score_global_mean"] > 0.01 for row in index)


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ("ScoreFilter.clip_length.min_length_s=3", "kept 2 1 -1"),
        ("ScoreFilter.clip_length.min_length_s=0.2", "1 documents are undecided"),
        ("MotionFilterStage.motion.global_mean_threshold=0.5", "kept 2 0 -2"),
        ("MotionFilterStage.motion.global_mean_threshold=0", "motion in all patches 0 -1 -1"),
    ],
)
def test_other_thresholds_are_tried_without_another_run(
    out: Path, capsys: pytest.CaptureFixture[str], change: str, line: str
) -> None:
    assert main(["what-if", str(out), change]) == 0
    printed = capsys.readouterr().out
    assert line in " ".join(printed.split()), printed


def test_with_the_bytes_of_dropped_clips_later_stages_are_tried_too(
    out: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["what-if", str(out.parent / "with bytes"), "ScoreFilter.clip_length.min_length_s=0.2"]) == 0
    printed = capsys.readouterr().out
    assert "kept 2 3 +1" in " ".join(printed.split()), printed


def test_a_clip_is_explained_by_its_scores(out: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for ident, words in (("film.mp4-slide", "motion of at least 0.00098"), ("film.mp4-black", "equally bright")):
        assert main(["explain", str(out), ident, "--id-field", "clip_id"]) == 0
        printed = capsys.readouterr().out
        assert words in printed, printed
    assert main(["dropped", str(out), "-n", "3"]) == 0
    assert "too short" in capsys.readouterr().out
