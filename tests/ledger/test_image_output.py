"""Runs that write images: the same bytes for any number of workers and after a kill, dropped images, verify, views."""

from __future__ import annotations

import json
import os
import random
import resource
import signal
import subprocess
import sys
import tarfile
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.images.samples import image_corpus
from tests.ledger.conftest import written

from gristmill.backends.local import LocalExecutor
from gristmill.cli.main import main
from gristmill.dedup import ExactDeduplication
from gristmill.errors import OutputChanged
from gristmill.image import ImageWriter
from gristmill.pipeline import Pipeline
from gristmill.scores.documents import StoredDocuments
from gristmill.scores.stored import StoredScores
from gristmill.text import ParquetReader, ScoreFilter, WordCountFilter


def curate(source: Path, out: Path, *stages, **options) -> Pipeline:
    return Pipeline(
        "images",
        stages=[
            ParquetReader(str(source), text_field="caption", blocksize="20KB"),
            ScoreFilter(WordCountFilter(min_words=4), text_field="caption", score_field="words"),
            *stages,
            ImageWriter(str(out), **{"images_per_tar": 5, **options}),
        ],
    )


def run(pipeline: Pipeline, workers: int = 2, **options):
    return pipeline.run(LocalExecutor(config={"view": "off", "num_cpus": workers}), **options)


def samples(out: Path) -> dict[str, dict[str, bytes]]:
    """The members of each image of an output, by its key. Every member is there once."""
    found: dict[str, dict[str, bytes]] = {}
    for path in sorted(out.glob("part-*.tar")):
        with tarfile.open(path) as archive:
            for info in archive:
                key, _, kind = info.name.partition(".")
                assert kind not in found.setdefault(key, {})
                found[key][kind] = archive.extractfile(info).read()
    return found


@pytest.fixture
def source(tmp_path) -> Path:
    return image_corpus(tmp_path / "in")


def test_every_image_is_kept_or_beside_the_output_with_its_bytes(source, tmp_path):
    result = run(curate(source, tmp_path / "out"))
    total = result.ledger.total()
    kept = samples(tmp_path / "out")
    dropped = pa.concat_tables([pq.read_table(path) for path in sorted((tmp_path / "out/excluded").iterdir())])
    assert (total.kept, total.dropped.total()) == (len(kept), dropped.num_rows) and total.documents == 120
    assert dropped.num_rows > 10 and len(kept) > 10
    read = pa.concat_tables([pq.read_table(path) for path in sorted(source.iterdir())])
    given = dict(zip(read.column("image_id").to_pylist(), read.to_pylist(), strict=True))
    ids = [json.loads(one["json"])["image_id"] for one in kept.values()] + dropped.column("image_id").to_pylist()
    assert sorted(ids) == sorted(given)
    for one in kept.values():
        about = json.loads(one.pop("json"))
        row = given[about["image_id"]]
        assert one.pop("txt").decode() == row["caption"] and list(one.values()) == [row["image"]]
        assert about == {"image_id": about["image_id"], "width": 40, "tags": row["tags"], "words": about["words"]}
    for row in dropped.to_pylist():
        assert row["image"] == given[row["image_id"]]["image"]
        assert (row["excluded_stage"], row["excluded_reason"]) == ("ScoreFilter", "too few words")
        assert row["excluded_score"] == len(row["caption"].split()) < 4


def test_all_files_of_dropped_images_have_one_schema(source, tmp_path):
    odd = pq.read_table(source / "1.parquet")
    pq.write_table(odd.set_column(3, "width", odd["width"].cast(pa.float64())), source / "1.parquet", row_group_size=10)
    run(curate(source, tmp_path / "out", ExactDeduplication(text_field="caption")))
    files = list((tmp_path / "out/excluded").iterdir())
    assert any("phase1" in path.name for path in files) and any("phase1" not in path.name for path in files)
    assert len({str(pq.read_schema(path)) for path in files}) == 1
    assert main(["verify", str(tmp_path / "out")]) == 0


@pytest.mark.parametrize("share", [False, 0.5])
def test_fewer_dropped_images_are_kept_if_less_is_wanted(source, tmp_path, share):
    run(curate(source, tmp_path / "all"))
    run(curate(source, tmp_path / "some", excluded=share))
    whole, some = (sorted((tmp_path / name / "excluded").glob("*")) for name in ("all", "some"))
    rows = [sum(pq.ParquetFile(path).metadata.num_rows for path in paths) for paths in (whole, some)]
    assert rows[1] == 0 if share is False else 0 < rows[1] < rows[0]


def test_the_bytes_do_not_depend_on_workers(source, tmp_path):
    for workers in (1, 2, 4):
        run(curate(source, tmp_path / f"out{workers}"), workers)
    one = written(tmp_path / "out1")
    assert len(one) > 12 and written(tmp_path / "out2") == one == written(tmp_path / "out4")


SCRIPT = """
import sys, time
sys.path.insert(0, {tests!r})
from pathlib import Path
from gristmill.stages.function_definitions import processing_stage
from gristmill.tasks import DocumentBatch
from tests.ledger.test_image_output import curate, run

@processing_stage()
def slow(batch: DocumentBatch) -> DocumentBatch:
    time.sleep(0.02)
    return batch

run(curate(Path(sys.argv[1]), Path(sys.argv[2]), slow))
"""


def test_a_driver_killed_at_any_moment_is_finished_by_the_next(source, tmp_path):
    script = tmp_path / "job.py"
    script.write_text(SCRIPT.format(tests=str(Path(__file__).parents[2])))
    command = [sys.executable, str(script), str(source)]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    subprocess.run([*command, str(tmp_path / "whole")], check=True, env=env)
    seed = random.randrange(1 << 32)
    print("seed", seed)
    rng = random.Random(seed)
    out, resumed = tmp_path / "out", 0
    for _ in range(4):
        process = subprocess.Popen([*command, str(out)], env=env, stderr=subprocess.DEVNULL)
        enough = len(list(out.glob("part-*"))) + rng.randint(0, 8)
        while len(list(out.glob("part-*"))) < enough and process.poll() is None:
            time.sleep(0.005)
        time.sleep(rng.uniform(0, 0.05))
        process.send_signal(signal.SIGKILL)
        resumed += process.wait() == -signal.SIGKILL
    assert resumed
    subprocess.run([*command, str(out)], check=True, env=env)
    assert written(out) == written(tmp_path / "whole")
    assert not list(out.rglob(".tmp-*"))


def test_damaged_and_missing_shards_are_found_and_made_again(source, tmp_path, capsys):
    out = tmp_path / "out"
    run(curate(source, out))
    before = written(out)
    one, two, *_ = sorted(out.glob("part-*.tar"))
    dropped = next((out / "excluded").iterdir())
    one.write_bytes(one.read_bytes().replace(b"word", b"WORD", 1))
    two.unlink()
    dropped.unlink()
    assert main(["verify", str(out)]) == 1
    printed = capsys.readouterr().out
    assert f"missing: {two.name}" in printed and f"missing: excluded/{dropped.name}" in printed
    assert f"damaged: {one.name}" in printed
    run(curate(source, out), verify=True)
    assert written(out) == before and main(["verify", str(out)]) == 0


def test_files_of_others_are_not_replaced_and_fresh_removes_what_a_run_wrote(source, tmp_path):
    out = tmp_path / "out"
    (out / "excluded").mkdir(parents=True)
    (out / "excluded/part-000001.parquet").write_bytes(b"mine")
    with pytest.raises(OutputChanged, match=r"excluded/part-000001\.parquet"):
        run(curate(source, out))
    (out / "excluded/part-000001.parquet").rename(out / "excluded/part-000001.tar")
    run(curate(source, out))
    run(curate(source, out, images_per_tar=1000), fresh=True)
    assert (out / "excluded/part-000001.tar").read_bytes() == b"mine"
    assert {path.name.count(".") for path in out.glob("part-*.tar")} == {1}
    (out / "excluded/part-000001.tar").unlink()
    assert main(["verify", str(out)]) == 0


YAML = """
stages:
- ParquetReader: {{file_paths: {source}, text_field: caption, blocksize: 20KB}}
- ImageWriter: {{path: {out}}}
"""


def test_a_limit_on_file_sizes_is_a_plain_error_and_nothing_is_half_written(source, tmp_path):
    (tmp_path / "p.yaml").write_text(YAML.format(source=source, out=tmp_path / "out"))
    code = "import sys; from gristmill.cli.main import main; sys.exit(main(sys.argv[1:]))"

    def limited() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (30_000, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))

    def ended(how) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", code, "run", "p.yaml", "--cpus", "2"]
        return subprocess.run(command, cwd=tmp_path, preexec_fn=how, capture_output=True, text=True, check=False)

    first = ended(limited)
    assert first.returncode == 1 and "ulimit -f, now 30,000 bytes" in first.stderr, first.stderr
    assert "Traceback" not in first.stderr and not list((tmp_path / "out").rglob(".tmp-*"))
    assert ended(None).returncode == 0 and len(samples(tmp_path / "out")) == 120


def test_terminal_views_show_format_and_size_instead_of_bytes(source, tmp_path, capsys):
    out = str(tmp_path / "out")
    run(curate(source, Path(out), ExactDeduplication(text_field="caption")))
    assert main(["dropped", out, "--stage", "ScoreFilter", "-n", "2"]) == 0
    printed = capsys.readouterr().out
    assert "set/" in printed and '"word' in printed and "40 x 30, " in printed
    assert main(["explain", out, "set/7.png"]) == 0
    printed = capsys.readouterr().out
    assert "image: PNG, 40 x 30, " in printed and "image_id: 'set/7.png'" in printed and "word_count" in printed
    assert main(["what-if", out, "ScoreFilter.word_count.min_words=7"]) == 0
    assert "go" in capsys.readouterr().out


def test_what_if_shows_captions_of_images_that_come_back_and_that_go(source, tmp_path, capsys):
    run(curate(source, tmp_path / "out"))
    assert main(["what-if", str(tmp_path / "out"), "ScoreFilter.word_count.min_words=3"]) == 0
    printed = capsys.readouterr().out
    assert "come back" in printed and '"word word word"' in printed
    assert main(["what-if", str(tmp_path / "out"), "ScoreFilter.word_count.min_words=5"]) == 0
    printed = capsys.readouterr().out
    assert '"word word word word"' in printed


def test_kept_images_of_stored_scores_are_read_from_the_shards(source, tmp_path):
    run(curate(source, tmp_path / "out", images_per_tar=4))
    scores = StoredScores(str(tmp_path / "out"))
    given = {row["image_id"]: row["image"] for path in source.iterdir() for row in pq.read_table(path).to_pylist()}
    kept = 0
    for file in scores.files:
        table = scores.table(file)
        wanted = [table.document(row) for row in range(len(table))]
        for one, record in StoredDocuments(scores).find(wanted).items():
            assert record is not None and record["image"] == given[record["image_id"]]
            file, _, row = one.ident.rpartition("#")
            assert Path(record["image_id"]).stem == str(40 * int(Path(file).stem) + int(row))
            kept += one.excluded_row is None
    assert kept == len(samples(tmp_path / "out")) > 10
