"""Filters of images in whole runs: stored scores, other thresholds, explanations and the report."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.images.made import busy, encoded, picture, samples
from tests.stages.deduplication.corpora import execute

from gristmill.analysis.stored_pipeline import in_source, stored_stages
from gristmill.analysis.what_if import what_if
from gristmill.cli.main import main
from gristmill.pipeline.explain import explain
from gristmill.report.build import rebuilt
from gristmill.scores.stored import StoredScores
from gristmill.stages.image.filters import BlurFilter, ColorfulnessFilter, ShortSideFilter
from gristmill.stages.text.filters import ScoreFilter, WordCountFilter
from gristmill.stages.text.io import ParquetReader, ParquetWriter

ROWS = {
    "good": ("a mill by the water", encoded(busy(320, 300), "JPEG")),
    "small": ("a mill by the water", encoded(busy(120, 110), "PNG")),
    "smaller": ("a mill by the water", encoded(busy(80, 70), "PNG")),
    "flat": ("a mill by the water", encoded(picture(300, 260).resize((1, 1)).resize((300, 260)), "PNG")),
    "grey": ("a mill by the water", encoded(busy(300, 260).convert("L"), "JPEG")),
    "untitled": ("", encoded(busy(300, 260, seed=1), "WEBP")),
    "truncated": ("a mill by the water", samples()["jpeg"][:3000]),
    "nonsense": ("a mill by the water", b"nonsense"),
}


def filters(min_side: int = 100, min_sharpness: float = 5.0) -> list[ScoreFilter]:
    first = ScoreFilter([WordCountFilter(1), ShortSideFilter(min_side)], text_field=["caption", None])
    return [first, ScoreFilter([BlurFilter(min_sharpness), ColorfulnessFilter()])]


def stages(folder: Path, out: str, **thresholds: float) -> list:
    reader = ParquetReader(str(folder / "in.parquet"), text_field=None)
    return [reader, *filters(**thresholds), ParquetWriter(str(folder / out))]


def run(folder: Path, out: str = "out", **thresholds: float):
    return execute(*stages(folder, out, **thresholds), workers=2, report=True, allow_empty=True)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    made = tmp_path_factory.mktemp("images")
    columns = {
        "name": list(ROWS),
        "caption": [caption for caption, _ in ROWS.values()],
        "image": pa.array([image for _, image in ROWS.values()], pa.large_binary()),
    }
    pq.write_table(pa.table(columns), made / "in.parquet")
    run(made)
    return made


def asked(folder: Path, *changes: str):
    pipeline = stored_stages(str(folder / "out"))
    return what_if(StoredScores(str(folder / "out")), pipeline, changes, in_source=in_source(pipeline))


def test_all_images_are_accounted_for(folder):
    assert pq.read_table(folder / "out/part-000000.parquet", columns=["name"])["name"].to_pylist() == ["good", "small"]
    assert pq.read_table(folder / "out/part-000000.parquet")["image"].to_pylist() == [
        ROWS["good"][1],
        ROWS["small"][1],
    ]
    excluded = pq.read_table(folder / "out/excluded/part-000000.parquet").to_pylist()
    assert {row["name"]: (row["excluded_reason"], row["excluded_score"]) for row in excluded} == {
        "smaller": ("too small", 70.0),
        "untitled": ("too few words", 0.0),
        "flat": ("blur", 0.0),
        "grey": ("colorfulness", 0.0),
    }
    lines = (folder / "out/quarantine/part-000000.jsonl").read_text().splitlines()
    assert [(row["position"], row["stage"], row["reason"]) for row in map(json.loads, lines)] == [
        (7, "ScoreFilter", "not an image of a known format"),
        (6, "ScoreFilter (2)", "truncated"),
    ]


@pytest.mark.parametrize(
    "thresholds",
    [
        {"min_side": 60},
        {"min_side": 115},
        {"min_side": 280},
        {"min_side": 115, "min_sharpness": 0.0},
        {"min_sharpness": 1e6},
    ],
)
def test_what_if_answers_as_a_run_with_other_thresholds_would(folder, tmp_path, thresholds):
    names = {"min_side": "short_side.min_side", "min_sharpness": "blur.min_sharpness"}
    found = asked(folder, *(f"{names[name]}={value}" for name, value in thresholds.items()))
    (tmp_path / "in.parquet").symlink_to(folder / "in.parquet")
    run(tmp_path, **thresholds)
    total = json.loads((tmp_path / "out/_gristmill/ledger.json").read_text())["total"]
    assert not found.undecided
    assert (found.after.kept, found.after.plain()["dropped"]) == (total["kept"], sorted(total["dropped"]))


def test_explain_shows_the_scores_of_an_image(folder):
    planned = stages(folder, "out")
    found = explain(planned, "small", id_field="name")
    assert found.kept
    scores = {one.name: (one.score, one.rule) for one in found.stages[0].findings + found.stages[1].findings}
    assert scores["word_count"][0] == 5 and scores["short_side"] == (110, "a short side of at least 100 pixels")
    assert scores["blur"][0] > 5 and scores["colorfulness"][0] > 5
    assert explain(planned, "flat", id_field="name").stages[1].verdict == "dropped: blur"


def test_explain_says_why_a_bad_image_is_in_quarantine(folder):
    planned = stages(folder, "out")
    found = explain(planned, "truncated", id_field="name")
    assert (found.stages[0].verdict, found.stages[1].verdict) == ("kept", "dropped: in quarantine, truncated")
    found = explain(planned, "nonsense", id_field="name")
    assert found.stages[0].verdict == "dropped: in quarantine, not an image of a known format"


def test_the_report_has_a_histogram_of_each_score(folder):
    data, page = rebuilt(str(folder / "out"))
    rules = {rule["rule"]: rule for rule in data["excluded"]["rules"]}
    counts = {}
    for name in ("short_side", "blur", "colorfulness"):
        assert rules[name]["histogram"]["is_of_all"]
        counts[name] = tuple(sum(rules[name]["histogram"][side]) for side in ("kept", "dropped"))
    assert counts == {"short_side": (5, 1), "blur": (3, 1), "colorfulness": (2, 1)}
    assert b"a short side of at least 100 pixels" in page


def test_the_command_line_finds_the_thresholds(folder, capsys):
    assert main(["what-if", str(folder / "out"), "short_side.min_side=60"]) == 0
    assert "too small" in capsys.readouterr().out
