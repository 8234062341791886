"""Whole runs over images: the same bytes for any number of workers, after kills, and through a barrier."""

from __future__ import annotations

import gzip
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

pytest.importorskip("PIL")

from tests.stages.image.io.pictures import picture, put, samples, shard

from gristmill.backends.local import LocalExecutor
from gristmill.cli.main import main
from gristmill.errors import OutputChanged, PlanError
from gristmill.pipeline import Pipeline
from gristmill.pipeline.explain import explain
from gristmill.pipeline.planner import flatten
from gristmill.stages.core import ProcessingStage
from gristmill.stages.deduplication.exact import ExactDeduplication
from gristmill.stages.image.io.reader import ImageReader
from gristmill.stages.text.filters import ScoreFilter, WordCountFilter
from gristmill.stages.text.io import ParquetWriter
from gristmill.tasks import DocumentBatch, ImageBatch

QUIET = {"view": "off", "num_cpus": 2}
KINDS = ("files", "shards", "stream", "manifest", "parquet")


def make_input(folder: Path, kind: str, count: int = 120) -> Path:
    """Images with captions and some damage."""
    members = samples(count)
    members[30:30] = [("bad.png", b"no image"), ("odd.txt", b"no image at all")]
    if kind == "files":
        for name, data in members:
            put(folder, f"{name[:5]}/{name}", data)
    elif kind in ("shards", "stream"):
        for n in range(4):
            data = shard(members[n::4] if kind == "stream" else members[n * 90 : n * 90 + 90])
            put(
                folder,
                f"{n}.tar" + ".gz" * (kind == "stream"),
                gzip.compress(data, mtime=0) if kind == "stream" else data,
            )
    else:
        for name, data in members:
            put(folder.parent / "images", name, data)
        lines = [
            {"path": f"../images/{name}", "text": f"caption of {name}"} for name, _ in members if name.endswith("png")
        ]
        lines.append({"path": "nothing.png", "text": "gone"})
        if kind == "manifest":
            put(folder, "m.jsonl", b"".join(json.dumps(line).encode() + b"\n" for line in lines))
        else:
            import pyarrow as pa

            folder.mkdir()
            pq.write_table(pa.Table.from_pylist(lines), folder / "m.parquet", row_group_size=20)
    return folder


def curate(source: Path, out: Path, *stages: ProcessingStage) -> Pipeline:
    reader = ImageReader(str(source), blocksize=4000)
    return Pipeline("curate", stages=[reader, *stages, ParquetWriter(str(out))])


def run(pipeline: Pipeline, **options: Any):
    how = {name: options.pop(name) for name in ("append", "fresh") if name in options}
    return pipeline.run(LocalExecutor(config={**QUIET, **options}), **how)


def written(out: Path) -> dict[str, bytes]:
    found = (path for path in out.rglob("*") if path.is_file() and "_gristmill" not in path.parts)
    return {str(path.relative_to(out)): path.read_bytes() for path in found}


@pytest.mark.parametrize("kind", KINDS)
def test_the_bytes_do_not_depend_on_workers(tmp_path, kind):
    source = make_input(tmp_path / "in", kind)
    for workers in (1, 2, 4):
        result = run(curate(source, tmp_path / str(workers)), num_cpus=workers)
        assert all(account.balances for account in result.ledger.files.values()) and not result.ledger.problems
    assert written(tmp_path / "1") == written(tmp_path / "2") == written(tmp_path / "4")
    assert result.ledger.total().kept >= 119 and result.ledger.total().errored.total() >= 1


SCRIPT = """
import sys, time
from pathlib import Path
sys.path.insert(0, {tests!r})
from tests.stages.image.io.test_runs import *
from gristmill.stages.function_definitions import processing_stage

@processing_stage(name="slow")
def slow(task: ImageBatch) -> ImageBatch:
    time.sleep(0.02)
    return task

run(curate(Path(sys.argv[1]), Path(sys.argv[2]), slow))
"""


@pytest.mark.parametrize("kind", ["files", "shards", "stream"])
def test_a_driver_killed_at_any_moment_is_finished_by_the_next(tmp_path, kind):
    source = make_input(tmp_path / "in", kind)
    script = tmp_path / "job.py"
    script.write_text(SCRIPT.format(tests=str(Path(__file__).parents[4])))
    command = [sys.executable, str(script), str(source)]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    subprocess.run([*command, str(tmp_path / "whole")], check=True, env=env)
    seed = secrets.randbits(32)
    print("seed", seed)
    rng = random.Random(seed)
    out, killed = tmp_path / "out", 0
    for _ in range(3):
        process = subprocess.Popen([*command, str(out)], env=env, stderr=subprocess.DEVNULL)
        enough = len(list(out.glob("part-*"))) + rng.randint(0, 6)
        while len(list(out.glob("part-*"))) < enough and process.poll() is None:
            time.sleep(0.005)
        process.send_signal(signal.SIGKILL)
        killed += process.wait() == -signal.SIGKILL
    assert killed
    subprocess.run([*command, str(out)], check=True, env=env)
    assert written(out) == written(tmp_path / "whole")
    ledgers = [json.loads((x / "_gristmill" / "ledger.json").read_text()) for x in (out, tmp_path / "whole")]
    assert [x["total"] for x in ledgers] == [ledgers[0]["total"]] * 2


class AsUsersWrite(ProcessingStage[ImageBatch, ImageBatch]):
    """A stage of a user that takes and returns images."""

    def process(self, task: ImageBatch) -> ImageBatch:
        assert type(task) is ImageBatch
        return task


@pytest.mark.parametrize("kind", ["shards", "manifest"])
def test_images_pass_stages_for_documents_and_barriers(tmp_path, kind):
    source = make_input(tmp_path / "in", kind)
    stages: list[Any] = [AsUsersWrite()]
    stages += [ExactDeduplication(text_field="caption"), AsUsersWrite()]
    result = run(curate(source, tmp_path / "out", *stages))
    assert not result.ledger.problems and result.ledger.total().kept
    one = run(curate(source, tmp_path / "direct", ExactDeduplication(text_field="caption"), AsUsersWrite()), num_cpus=1)
    parts = [sorted(path for path in (tmp_path / name).glob("part-*")) for name in ("out", "direct")]
    tables = [[row for path in some for row in pq.read_table(path).to_pylist()] for some in parts]
    assert tables[0] == tables[1] and one.ledger.total().kept == result.ledger.total().kept


class TextOnly(ProcessingStage[DocumentBatch, DocumentBatch]):
    """May return any documents."""

    def process(self, task: DocumentBatch) -> DocumentBatch:
        return DocumentBatch(task.data)


def test_planning_knows_where_images_are_images(tmp_path):
    put(tmp_path, "in/a.png", picture(1))
    words = ScoreFilter(WordCountFilter(min_words=1), text_field="caption")
    curate(tmp_path / "in", tmp_path / "out", words, AsUsersWrite()).plan()
    with pytest.raises(PlanError, match="takes ImageBatch, but stage 2 'TextOnly' gives DocumentBatch"):
        curate(tmp_path / "in", tmp_path / "out", TextOnly(), AsUsersWrite()).plan()


@pytest.mark.parametrize("kind", KINDS)
def test_an_image_is_found_and_explained_by_its_id(tmp_path, kind):
    source = make_input(tmp_path / "in", kind)
    pipeline = curate(source, tmp_path / "out")
    for block in pipeline.stages[0].source()[:1]:
        made: Any = pipeline.stages[0].process(block)
        batch = made if isinstance(made, ImageBatch) else list(made)[-1]
    ident = batch.data.column("_gristmill_id")[batch.num_items - 1].as_py()
    found = explain(flatten(pipeline.stages), ident)
    assert found.document == ident and found.fields["image_id"] == batch.to_pylist()[-1]["image_id"]


def test_a_new_folder_is_appended_and_a_changed_one_refused(tmp_path):
    for n in range(30):
        put(tmp_path, f"in/{n % 3}/{n}.png", picture(n))
    run(curate(tmp_path / "in", tmp_path / "out"))
    before = written(tmp_path / "out")
    put(tmp_path, "in/new/x.png", picture(50))
    with pytest.raises(OutputChanged):
        run(curate(tmp_path / "in", tmp_path / "out"))
    result = run(curate(tmp_path / "in", tmp_path / "out"), append=True)
    after = written(tmp_path / "out")
    assert result.ledger.total().kept == 31 and {name: after[name] for name in before} == before
    put(tmp_path, "in/1/y.png", picture(51))
    with pytest.raises(OutputChanged, match="in/1/"):
        run(curate(tmp_path / "in", tmp_path / "out"), append=True)


def test_the_output_may_not_be_in_a_folder_that_is_read(tmp_path):
    put(tmp_path, "in/a.png", picture(1))
    with pytest.raises(PlanError, match="write to another folder"):
        run(curate(tmp_path / "in", tmp_path / "in"))


def test_a_pipeline_in_yaml_with_limits(tmp_path, capsys):
    source = make_input(tmp_path / "in", "shards")
    text = f"""
name: images
stages:
  - ImageReader: {{file_paths: {source}, caption_lines: first, max_pixels: 1000}}
  - ParquetWriter: {{path: {tmp_path}/out}}
"""
    put(tmp_path, "p.yaml", text.encode())
    assert main(["run", str(tmp_path / "p.yaml"), "--dry-run"]) == 0
    assert "4 files" in capsys.readouterr().out
    assert main(["run", str(tmp_path / "p.yaml"), "--limit", "10", "--view", "off"]) == 0
    rows = [row for path in (tmp_path / "out").glob("part-*") for row in pq.read_table(path).to_pylist()]
    assert len(rows) == 10 and rows[0]["caption"] == "caption 0"
