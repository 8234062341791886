"""The writer of clips: the files of each clip, the index, dropped clips, and what runs promise of their output."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.ledger.conftest import written
from tests.stages.deduplication.in_process import InProcess
from tests.videos.made import batch, blank, encoded, panned

from gristmill.backends.local import LocalExecutor
from gristmill.cli.main import main
from gristmill.errors import OutputChanged
from gristmill.ledger.names import PLACES, OutputNames
from gristmill.pipeline import Pipeline
from gristmill.stages.video.filtering import BlankClipFilter, ClipLengthFilter
from gristmill.stages.video.io.clip_writer import ClipWriterStage
from gristmill.text import ParquetReader, ScoreFilter
from gristmill.video import PreviewStage

FILES, CLIPS = 3, 6
EVERY = 3
"""One clip of three is blank."""


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Parquet files of clips with previews and embeddings."""
    folder = tmp_path_factory.mktemp("in")
    for file in range(FILES):
        rows = []
        for number in range(file * CLIPS, (file + 1) * CLIPS):
            frames = blank(number, 4, 64, 48) if number % EVERY == 0 else panned(number, 4, 2.0, 64, 48)
            clip = encoded(frames, options={"preset": "ultrafast"})
            about = {"clip_id": f"film {file}.mp4-{number:03}", "video": f"/films/film {file}.mp4", "start_s": 1.0}
            vector = np.arange(3, dtype=np.float32) + number
            rows.append({**about, "end_s": 1.5 + number, "clip": clip, "tags": ["a", str(number)], "embedding": vector})
        schema = pa.schema(
            [
                *((name, pa.string()) for name in ("clip_id", "video")),
                *((name, pa.float64()) for name in ("start_s", "end_s")),
                ("clip", pa.binary()),
                ("tags", pa.list_(pa.string())),
                ("embedding", pa.list_(pa.float32(), 3)),
            ]
        )
        pq.write_table(pa.Table.from_pylist(rows, schema), folder / f"{file}.parquet", row_group_size=2)
    return folder


def curate(source: Path, out: Path, *stages: Any, **options: Any) -> Pipeline:
    return Pipeline(
        "clips",
        stages=[
            ParquetReader(str(source), text_field="clip_id", blocksize="1KB"),
            ScoreFilter([ClipLengthFilter(1.0), BlankClipFilter()], keep_scores=True),
            *stages,
            ClipWriterStage(out, **options),
        ],
    )


def run(pipeline: Pipeline, workers: int = 0, **options: Any) -> Any:
    """Run a pipeline in this process, or on so many workers."""
    executor = LocalExecutor(config={"view": "off", "num_cpus": workers}) if workers else InProcess()
    return pipeline.run(executor, **options)


def rows_of(folder: Path) -> list[dict[str, Any]]:
    paths = sorted(folder.glob("part-*.parquet"))
    return pa.concat_tables([pq.read_table(path) for path in paths], promote_options="permissive").to_pylist()


def test_each_clip_is_a_file_with_its_metadata_preview_and_embedding_and_a_row_of_the_index(
    source: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    result = run(curate(source, out, PreviewStage(target_height=24), generate_embeddings=True))
    given = {row["clip_id"]: row for row in rows_of_source(source)}
    index = rows_of(out)
    total = result.ledger.total()
    dropped = [ident for n, ident in enumerate(given) if n % EVERY == 0]
    assert (total.documents, total.kept, total.dropped.total()) == (len(given), len(index), len(dropped))
    assert sorted(row["clip_id"] for row in index) == sorted(set(given) - set(dropped))
    for row in index:
        before = given[row["clip_id"]]
        assert (out / row["clip_path"]).read_bytes() == before["clip"]
        assert row["clip_bytes"] == len(before["clip"])
        assert (out / row["preview_path"]).read_bytes()[:4] == b"RIFF"
        stem = Path(row["clip_path"]).stem
        assert stem.startswith("part-") and "_" in stem
        about = json.loads((out / f"metas/v0/{stem}.json").read_bytes())
        assert about == {name: value for name, value in row.items() if name != "embedding"}
        assert about["tags"] == before["tags"] and about["end_s"] == before["end_s"]
        vector = np.load(out / f"embeddings/{stem}-embedding.npy")
        assert vector.tolist() == before["embedding"] == row["embedding"]
        assert {"clip", "preview"}.isdisjoint(row)
    files = {place: len(list((out / place).iterdir())) for place in ("clips", "previews", "metas/v0", "embeddings")}
    assert set(files.values()) == {len(index)}
    excluded = rows_of(out / "excluded")
    assert sorted(row["clip_id"] for row in excluded) == dropped
    assert all(row["excluded_reason"] in ("too short", "blank_clip") and row["start_s"] == 1.0 for row in excluded)
    assert all("clip" not in row for row in excluded)
    assert main(["verify", str(out)]) == 0


def rows_of_source(source: Path) -> list[dict[str, Any]]:
    return [row for path in sorted(source.iterdir()) for row in pq.read_table(path).to_pylist()]


def test_files_that_are_not_wanted_are_not_written(source: Path, tmp_path: Path) -> None:
    run(curate(source, tmp_path / "dry", dry_run=True))
    assert {path.name for path in (tmp_path / "dry").iterdir()} <= {
        *(path.name for path in (tmp_path / "dry").glob("part-*.parquet")),
        *("excluded", "scores", "_gristmill"),
    }
    assert "clip_path" not in rows_of(tmp_path / "dry")[0]
    some = tmp_path / "some"
    run(curate(source, some, generate_metadata=False, fields=["end_s"], excluded_clips=True))
    assert not (some / "metas").exists()
    assert set(rows_of(some)[0]) == {"clip_id", "end_s", "clip_path", "clip_bytes", "preview_path"}
    given = {row["clip_id"]: row["clip"] for row in rows_of_source(source)}
    excluded = rows_of(some / "excluded")
    assert excluded and all(row["clip"] == given[row["clip_id"]] for row in excluded)


def test_the_bytes_do_not_depend_on_workers(source: Path, tmp_path: Path) -> None:
    for workers in (0, 4):
        run(curate(source, tmp_path / f"out{workers}", generate_embeddings=True), workers)
    one = written(tmp_path / "out0")
    assert len(one) > 30
    assert written(tmp_path / "out4") == one


SCRIPT = """
import sys, time
sys.path.insert(0, {tests!r})
from pathlib import Path
from gristmill.stages.function_definitions import processing_stage
from gristmill.tasks import DocumentBatch
from tests.stages.video.writer.test_clip_writer import curate, run

@processing_stage()
def slow(batch: DocumentBatch) -> DocumentBatch:
    time.sleep(0.05)
    return batch

run(curate(Path(sys.argv[1]), Path(sys.argv[2]), slow), 2)
"""


def test_a_driver_killed_at_any_moment_is_finished_by_the_next(source: Path, tmp_path: Path) -> None:
    script = tmp_path / "job.py"
    script.write_text(SCRIPT.format(tests=str(Path(__file__).parents[4])))
    command = [sys.executable, str(script), str(source)]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    subprocess.run([*command, str(tmp_path / "whole")], check=True, env=env)
    seed = random.randrange(1 << 32)
    print("seed", seed)
    rng = random.Random(seed)
    out = tmp_path / "out"
    process = subprocess.Popen([*command, str(out)], env=env, stderr=subprocess.DEVNULL)
    enough = rng.randint(1, 8)
    while len(list(out.glob("clips/part-*"))) < enough and process.poll() is None:
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    (out / "clips" / "part-000001.left_over-1.mp4").write_bytes(b"of an attempt that was split otherwise")
    subprocess.run([*command, str(out)], check=True, env=env)
    assert written(out) == written(tmp_path / "whole")
    assert not list(out.rglob(".tmp-*"))


def test_damaged_and_missing_clips_are_found_and_written_again(
    source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    run(curate(source, out))
    before = written(out)
    one, two, *_ = sorted((out / "clips").iterdir())
    one.write_bytes(one.read_bytes()[:-1] + b"x")
    two.unlink()
    (out / "clips/part-000000.other-1.mp4").write_bytes(b"")
    assert main(["verify", str(out)]) == 1
    printed = capsys.readouterr().out
    assert f"damaged: clips/{one.name}" in printed and f"missing: clips/{two.name}" in printed
    assert "unexpected: clips/part-000000.other-1.mp4" in printed
    (out / "clips/part-000000.other-1.mp4").unlink()
    run(curate(source, out), verify=True)
    assert written(out) == before
    assert main(["verify", str(out)]) == 0


def test_files_of_others_are_not_replaced_and_fresh_removes_what_a_run_wrote(source: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    (out / "clips").mkdir(parents=True)
    (out / "clips/part-000001.a-1.mp4").write_bytes(b"mine")
    with pytest.raises(OutputChanged, match=r"clips/part-000001\.a-1\.mp4"):
        run(curate(source, out))
    (out / "clips/part-000001.a-1.mp4").rename(out / "clips/holiday.mp4")
    run(curate(source, out))
    run(curate(source, out, upload_clips=False, generate_metadata=False), fresh=True)
    assert [path.name for path in (out / "clips").iterdir()] == ["holiday.mp4"]
    assert not (out / "metas").exists()
    assert main(["verify", str(out)]) == 0


def test_names_of_the_files_of_clips_are_known_by_their_block() -> None:
    names = OutputNames.of(ClipWriterStage("out"), 3)
    assert OutputNames.of_run({"output": names.plain()}, 3) == names
    assert names.block_of("clips", "part-000002.00001-00000003-00000004.film_mp4-a1.mp4") == 2
    assert names.is_own("metas/v0/part-000001.a-1.json")
    for place, name in (
        ("clips", "part-000003.a-1.mp4"),
        ("clips", "part-000001.mp4"),
        ("clips", "part-000001.a-1.json"),
        ("clips", "part-000001.a.b.mp4"),
        ("metas/v0", "part-000001.a-1.mp4"),
        ("", "part-000001.a-1.parquet"),
    ):
        assert names.block_of(place, name) is None, (place, name)
    assert not names.is_own("embeddings/part-000001.a-1.npy"), "embeddings were not asked for"
    assert OutputNames.of(ClipWriterStage("out", dry_run=True), 3).places == PLACES


def test_clips_that_are_none_are_bad_records_and_equal_ids_have_files_of_their_own(tmp_path: Path) -> None:
    clip = encoded(panned(1, 3, 1.0, 64, 48))
    webm = encoded(panned(1, 3, 1.0, 64, 48), "libvpx-vp9", container="webm")
    task = batch([clip, None, b"", b"no clip at all", webm])
    made = ClipWriterStage(tmp_path).process(task)
    assert [one.reason for one in made.account.bad] == ["no clip", "empty", "not a video of a known format"]
    assert [Path(row["clip_path"]).suffix for row in rows_of(tmp_path)] == [".mp4", ".webm"]
    assert sum(one.rows for one in made.account.written) == 2
    twice = batch([clip, webm], clip_id=pa.array(["same", "same"]))
    ClipWriterStage(tmp_path / "twice").process(twice)
    paths = [row["clip_path"] for row in rows_of(tmp_path / "twice")]
    assert len(set(paths)) == 2
    assert (tmp_path / "twice" / paths[1]).read_bytes() == webm


def test_the_folder_is_named_once() -> None:
    assert ClipWriterStage(output_path="x").path == "x"
    for options in ({}, {"path": "x", "output_path": "x"}):
        with pytest.raises(ValueError, match="give one of them"):
            ClipWriterStage(**options)
    with pytest.raises(ValueError, match="max_workers"):
        ClipWriterStage("x", max_workers=0)


def test_clips_are_written_to_a_remote_storage(tmp_path: Path) -> None:
    import fsspec

    task = batch([encoded(panned(n, 3, 1.0, 64, 48)) for n in range(5)])
    stages = [ClipWriterStage(out) for out in ("memory://clips/out", tmp_path)]
    there, here = (
        [(one.name, one.rows, one.size, one.checksum) for one in stage.process(task).account.written]
        for stage in stages
    )
    assert there == here
    storage = fsspec.filesystem("memory")
    for name, *_ in here:
        assert storage.cat_file(f"/clips/out/{name}") == (tmp_path / name).read_bytes()
    storage.rm("/clips", recursive=True)
