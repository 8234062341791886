"""A limit on the size of files (``ulimit -f``) and a full disk: a plain error, nothing left behind, and a way back."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from gristmill.errors import OutOfSpace, PipelineError, out_of_space
from gristmill.pipeline import Pipeline
from gristmill.stages.text.io import JsonlReader, JsonlWriter
from gristmill.storage import Folder

FILTER = """
name: p
stages:
- JsonlReader: {{file_paths: {folder}/in.jsonl}}
- WRITER: {{path: {folder}/out}}
"""
FUZZY = FILTER.replace("- WRITER", "- FuzzyDeduplication: {{}}\n- WRITER")


def run(folder: Path, text: str, limit: int) -> subprocess.CompletedProcess[str]:
    (folder / "p.yaml").write_text(text.format(folder=folder))

    def limited() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))

    command = [sys.executable, "-m", "gristmill.cli", "run", "p.yaml", "--cpus", "2"]
    command[1:3] = ["-c", "import sys; from gristmill.cli.main import main; sys.exit(main(sys.argv[1:]))"]
    return subprocess.run(
        command, cwd=folder, preexec_fn=limited, capture_output=True, text=True, timeout=100, check=False
    )


@pytest.fixture
def folder(tmp_path):
    lines = (json.dumps({"text": f"document {i} " + f"{i * 7919} words " * 40}) for i in range(6000))
    (tmp_path / "in.jsonl").write_text("\n".join(lines))
    return tmp_path


@pytest.mark.parametrize("pipeline", [FILTER.replace("WRITER", "JsonlWriter"), FUZZY.replace("WRITER", "JsonlWriter")])
@pytest.mark.parametrize("limit", [500_000, 50_000])
def test_a_limit_on_file_sizes_is_a_plain_error(folder, pipeline, limit):
    ended = run(folder, pipeline, limit)
    assert ended.returncode == 1, ended.stderr
    assert f"ulimit -f, now {limit:,} bytes" in ended.stderr
    assert "Traceback" not in ended.stderr + ended.stdout
    assert not list((folder / "out").rglob(".tmp-*"))
    ended = run(folder, pipeline, resource.getrlimit(resource.RLIMIT_FSIZE)[0])
    assert ended.returncode == 0, ended.stderr
    kept = "".join(path.read_text() for path in sorted((folder / "out").glob("part-*")))
    assert kept.count("\n") == 6000


def test_no_space_for_what_is_passed_between_processes(folder):
    pytest.importorskip("pandas")
    (folder / "mine.py").write_text(
        "from gristmill import Pipeline\n"
        "from gristmill.stages.core import ProcessingStage\n"
        "from gristmill.stages.text.io import JsonlReader\n"
        "class Mine(ProcessingStage):\n"
        "    batch_size = 2\n"
        "    def process(self, task):\n"
        "        return task\n"
        f"pipeline = Pipeline('m', stages=[JsonlReader({str(folder / 'in.jsonl')!r}), Mine()])\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", "import sys; from gristmill.cli.main import main; sys.exit(main(['run', 'mine.py']))"],
        cwd=folder,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (600_000, 600_000)),
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert ended.returncode == 1
    assert "ulimit -f, now 600,000 bytes" in ended.stderr and "Traceback" not in ended.stderr + ended.stdout


def test_a_full_disk_is_a_plain_error(folder):
    """`/dev/full` is a file that is always full."""
    with pytest.raises(OSError) as caught, open("/dev/full", "wb", buffering=0) as file:
        file.write(b"x")
    error = out_of_space("out/part-000000.jsonl", caught.value)
    assert isinstance(error, OutOfSpace)
    assert str(error).startswith("out/part-000000.jsonl cannot be written: the disk is full.")
    assert out_of_space("x", PermissionError(13, "denied")) is None


@pytest.mark.parametrize("what", ["commits", "run.json"])
def test_no_space_for_what_the_driver_writes_is_a_plain_error(folder, monkeypatch, what):
    """The disk is full when a commit, or the description of the run, is written."""
    write = Folder.write

    def full(self, name, data, *more, **others):
        if what in name:
            raise OutOfSpace(f"{self.path(name)} cannot be written: the disk is full.")
        return write(self, name, data, *more, **others)

    pipeline = Pipeline("p", stages=[JsonlReader(str(folder / "in.jsonl")), JsonlWriter(str(folder / "out"))])
    with monkeypatch.context() as patched:
        patched.setattr(Folder, "write", full)
        with pytest.raises(PipelineError, match="the disk is full"):
            pipeline.run()
    assert pipeline.run().ok
