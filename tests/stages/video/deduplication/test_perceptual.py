"""Copies of clips are removed, whatever their codec, size and rate; clips that only look alike stay."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image
from tests.stages.deduplication.in_process import InProcess
from tests.stages.image.deduplication.corpus import removed_in
from tests.videos.made import blank, encoded, panned, still, with_bars

from gristmill.backends.local import LocalExecutor
from gristmill.cli.main import main
from gristmill.pipeline import Pipeline
from gristmill.pipeline.explain import explain
from gristmill.stages.deduplication.semantic.stage import SemanticDeduplication
from gristmill.stages.video.deduplication.picture import FRAMES, picture_of
from gristmill.text import ParquetReader
from gristmill.video import ClipPerceptualDeduplication, ClipWriterStage

FAST = {"preset": "veryfast"}
LENGTH = 24


def half(frames: Any) -> list[Any]:
    return [np.asarray(Image.fromarray(frame).resize((80, 46))) for frame in frames]


def copies(seed: int) -> dict[str, bytes]:
    """A clip and its copies. The original has most pixels, but for the one with bars."""
    frames = list(panned(seed, LENGTH, 3.0))
    return {
        "original": encoded(frames, options=FAST),
        "low quality": encoded(frames, options={**FAST, "crf": "34"}),
        "half size": encoded(half(frames), options=FAST),
        "VP9": encoded(half(frames), "libvpx-vp9", options={"deadline": "realtime", "cpu-used": "8"}),
        "HEVC": encoded(half(frames), "libx265"),
        "half rate": encoded(half(frames[::2]), fps=15, options=FAST),
        "bars": encoded(with_bars(([frame[:78] for frame in map(_low, frames)]), 6), options=FAST),
    }


def _low(frame: Any) -> Any:
    """A frame of 160 x 66 with 6 rows for each bar."""
    inside = np.asarray(Image.fromarray(frame).resize((160, 66)))
    return np.concatenate([np.zeros((6, 160, 3), np.uint8), inside, np.zeros((6, 160, 3), np.uint8)])


def walked(seed: int) -> bytes:
    """One background, before which something bright moves: where and how depends on the seed."""
    random_ = np.random.default_rng(seed)
    begin, step = random_.uniform(0, 60, 2), random_.uniform(1, 3, 2) * random_.choice([-1, 1], 2)
    frames = []
    for number, frame in enumerate(still(99, LENGTH)):
        changed = frame.copy()
        x, y = (int(value) for value in np.clip(begin + number * step + 30, 0, (140, 70)[0]))
        changed[y % 70 : y % 70 + 20, x : x + 20] = 255
        frames.append(changed)
    return encoded(frames, options=FAST)


@pytest.fixture(scope="module")
def clips() -> dict[str, bytes | None]:
    seed = random.randrange(1 << 20)
    print(f"seed {seed}")
    found: dict[str, Any] = {f"{n} {kind}": data for n in (seed, seed + 1) for kind, data in copies(n).items()}
    found |= {f"walk {n}": walked(seed + n) for n in range(3)}
    found |= {f"still {n}": encoded(still(seed + 2, 12 + n), options=FAST) for n in range(2)}
    found |= {f"black {n}": encoded(blank(0, 12 + n), options=FAST) for n in range(2)}
    found |= {"damaged": b"no clip", "missing": None}
    names = list(found)
    random.Random(seed).shuffle(names)
    return {name: found[name] for name in names}


@pytest.fixture(scope="module")
def source(clips: dict[str, bytes | None], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("in")
    names = list(clips)
    for number in range(2):
        some = names[number::2]
        columns = {"clip_id": pa.array(some), "clip": pa.array([clips[name] for name in some], pa.binary())}
        pq.write_table(pa.table(columns), folder / f"{number}.parquet", row_group_size=4)
    return folder


def run(source: Path, out: Path, *stages: Any, workers: int = 0) -> Any:
    executor = LocalExecutor({"num_cpus": workers, "view": "off"}) if workers else InProcess()
    reader = ParquetReader(str(source), text_field=None, blocksize="20KB")
    return Pipeline("clips", stages=[reader, *stages, ClipWriterStage(out, dry_run=True)]).run(executor)


def kept_in(out: Path) -> set[str]:
    return {row for path in out.glob("part-*.parquet") for row in pq.read_table(path).column("clip_id").to_pylist()}


@pytest.mark.parametrize("workers", [0, 2])
def test_copies_are_removed_and_others_stay(
    source: Path, clips: dict[str, bytes | None], tmp_path: Path, workers: int
) -> None:
    stage = ClipPerceptualDeduplication(id_field="clip_id")
    result = run(source, tmp_path / "out", stage, workers=workers)
    removed = removed_in(tmp_path / "out")
    kept = kept_in(tmp_path / "out")
    assert kept | set(removed) == set(clips) - {"damaged", "missing"}
    families: dict[str, set[str]] = {}
    for name in kept:
        families.setdefault(name.partition(" ")[0], set()).add(name)
    seeds = [name.partition(" ")[0] for name in clips if name.endswith("original")]
    assert len(seeds) == 2
    for seed in seeds:
        [stays] = families[seed]
        assert stays.partition(" ")[2] in ("original", "low quality"), "the largest one stays"
        gone = {name: row for name, row in removed.items() if name.startswith(seed)}
        assert {row["survivor_document_id"] for row in gone.values()} == {stays}
        assert all(row["distance"] <= 12 and row["similarity"] >= 0.9 for row in gone.values())
    assert len(families["walk"]) == 3, "something else moves before the same background"
    assert len(families["still"]) == len(families["black"]) == 1
    total = result.ledger.total()
    assert (total.kept, total.errored.total()) == (len(kept), 2)
    assert not total.imbalance()


def test_explain_names_the_clip_that_stays(source: Path, clips: dict[str, bytes | None], tmp_path: Path) -> None:
    out = tmp_path / "out"
    stage = ClipPerceptualDeduplication(id_field="clip_id", survivor="first")
    run(source, out, stage)
    assert main(["verify", str(out)]) == 0
    name, row = next((name, row) for name, row in removed_in(out).items() if name.endswith("VP9"))
    stages = [ParquetReader(str(source), text_field=None), stage, ClipWriterStage(out, dry_run=True)]
    found = explain(stages, name, "clip_id").stages[-1]
    assert {one.name: one.score for one in found.findings} == {
        "distance": row["distance"],
        "similarity": row["similarity"],
    }
    notes = "\n".join(found.notes)
    assert "this clip: " in notes and "vp9, 80 x 46 pixels" in notes and "survivor: h264" in notes


def test_embeddings_of_clips_are_deduplicated_as_those_of_texts(tmp_path: Path) -> None:
    """Semantic deduplication reads the column of vectors, from an index that `ClipWriterStage` wrote too."""
    rows = np.random.default_rng(1).normal(size=(6, 16)).astype(np.float32)
    rows[3:] = rows[:3] + 0.0001
    folder = tmp_path / "in"
    folder.mkdir()
    clip = encoded(panned(1, 3, 1.0, 64, 48))
    columns = {
        "clip_id": pa.array([f"c{n}" for n in range(6)]),
        "clip": pa.array([clip] * 6, pa.binary()),
        "embeddings": pa.FixedSizeListArray.from_arrays(pa.array(rows.ravel()), 16),
    }
    pq.write_table(pa.table(columns), folder / "0.parquet")
    stages = [ParquetReader(str(folder), text_field=None), ClipWriterStage(tmp_path / "index")]
    Pipeline("index", stages=stages).run(InProcess())
    for source, wanted in ((folder, False), (tmp_path / "index", True)):
        out = tmp_path / f"out {wanted}"
        stage = SemanticDeduplication(eps=0.01, which_to_keep="first", n_clusters=2, id_field="clip_id")
        reader = ParquetReader(str(source), text_field=None)
        Pipeline("dedup", stages=[reader, stage, ClipWriterStage(out, dry_run=True)]).run(InProcess())
        assert kept_in(out) == {"c0", "c1", "c2"}


def test_the_picture_of_a_clip_shows_what_moves() -> None:
    moving = np.stack(list(panned(5, FRAMES, 4.0)))
    same = np.stack(list(still(5, FRAMES)))
    cells = {name: picture_of(frames)[:80, 80:] for name, frames in {"moving": moving, "still": same}.items()}
    assert cells["moving"].std() > 20
    assert cells["still"].std() == 0
    backwards = picture_of(moving[::-1])
    assert (backwards[:80, :80] == picture_of(moving)[:80, :80]).all()
    assert np.corrcoef(backwards[:80, 80:].ravel(), cells["moving"].ravel())[0, 1] < -0.9
    boxed = np.stack(list(with_bars(moving, 10)))
    inside = picture_of(moving[:, 10:80])
    assert np.abs(picture_of(boxed).astype(int) - inside).max() <= 1


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"max_distance": 16}, "max_distance"),
        ({"min_similarity": 0}, "min_similarity"),
        ({"survivor": "best"}, "score_field"),
        ({"survivor": "longest"}, "survivor"),
    ],
)
def test_wrong_arguments_are_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        ClipPerceptualDeduplication(**options)
