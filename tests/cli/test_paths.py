"""Relative paths in a pipeline file begin at its folder, whatever folder the command runs in."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from gristmill.cli.main import main
from gristmill.config.load import load
from gristmill.pipeline import Pipeline
from gristmill.stages.registry import arguments_of

PIPELINE = """\
name: small
stages:
  - JsonlReader: {file_paths: [input/a.jsonl, ./input/b.jsonl]}
  - ScoreFilter: {filter_obj: {BadWordsFilter: {file: words.txt}}}
  - JsonlWriter: {path: output/}
"""


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    (folder / "input").mkdir(parents=True)
    for name in "ab":
        lines = [json.dumps({"id": f"{name}{i}", "text": "nice" if i else "bad"}) for i in range(3)]
        (folder / "input" / f"{name}.jsonl").write_text("\n".join(lines) + "\n")
    (folder / "words.txt").write_text("bad\n")
    (folder / "pipeline.yaml").write_text(PIPELINE)
    (tmp_path / "elsewhere").mkdir()
    return folder


def gristmill(*args: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "gristmill", *args]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=300, cwd=cwd)


def test_a_run_resumes_and_documents_are_explained_from_any_folder(data):
    elsewhere = data.parent / "elsewhere"
    first = gristmill("run", "../data/pipeline.yaml", "--view", "off", cwd=elsewhere)
    assert first.returncode == 0, first.stderr
    assert list(elsewhere.iterdir()) == []
    assert len(list((data / "output").glob("part-*.jsonl"))) == 2
    (data.parent / "link").symlink_to(data)
    for target, cwd in (
        ("pipeline.yaml", data),
        ("data/pipeline.yaml", data.parent),
        ("link/pipeline.yaml", data.parent),
    ):
        again = gristmill("run", target, "--view", "off", cwd=cwd)
        assert again.returncode == 0, again.stderr
        assert "nothing was left to do" in again.stdout
    for output, cwd in (("../data/output", elsewhere), ("output", data), (str(data / "output"), Path("/"))):
        explained = gristmill("explain", output, "a0", cwd=cwd)
        assert explained.returncode == 0, explained.stderr
        assert explained.stdout.rstrip().endswith("dropped")


def test_an_output_of_a_python_pipeline_with_relative_paths_is_explained_from_any_folder(data):
    (data / "run.py").write_text(
        "from gristmill import Pipeline\n"
        "text = open('pipeline.yaml').read()\n"
        "if __name__ == '__main__':\n"
        "    Pipeline.from_yaml(text).run()\n"
    )
    done = subprocess.run([sys.executable, "run.py"], cwd=data, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    explained = gristmill("explain", "data/output", "b0", cwd=data.parent)
    assert explained.returncode == 0, explained.stderr


def test_paths_that_are_set_begin_at_the_current_folder(data, monkeypatch):
    monkeypatch.chdir(data.parent)
    read, filtered, written = load(
        "data/pipeline.yaml", ["JsonlWriter.path=out/", "JsonlReader.file_paths.1=x.jsonl"]
    ).stages
    assert (arguments_of(written) or {})["path"] == "out/"
    assert (arguments_of(read) or {})["file_paths"] == [f"{data}/input/a.jsonl", "x.jsonl"]
    assert (arguments_of((arguments_of(filtered) or {})["filter_obj"]) or {})["file"] == f"{data}/words.txt"


def test_urls_absolute_paths_and_a_home_folder_stay_as_they_are(data):
    given = ["s3://bucket/in", "/absolute/in", "~/in"]
    (data / "pipeline.yaml").write_text(
        yaml.safe_dump({"stages": [{"JsonlReader": {"file_paths": given}}, {"JsonlWriter": {"path": "memory://out"}}]})
    )
    reader, writer = load(data / "pipeline.yaml").stages
    assert (arguments_of(reader) or {})["file_paths"] == given
    assert (arguments_of(writer) or {})["path"] == "memory://out"


def test_a_text_that_is_no_file_has_its_paths_as_they_are(data, monkeypatch):
    monkeypatch.chdir(data)
    pipeline = Pipeline.from_yaml(PIPELINE)
    assert (arguments_of(pipeline.stages[-1]) or {})["path"] == "output/"
    assert "path: output/" in pipeline.to_yaml()


def test_columns_with_the_names_of_files_are_no_paths(data):
    text = PIPELINE.replace("words.txt}}}", "words.txt}}, text_field: text, score_field: words.txt}")
    (data / "pipeline.yaml").write_text(text)
    filtered = load(data / "pipeline.yaml").stages[1]
    assert (arguments_of(filtered) or {})["score_field"] == "words.txt"


def test_a_data_file_that_is_not_there_is_an_error_with_its_line(data):
    (data / "words.txt").unlink()
    done = gristmill("run", "data/pipeline.yaml", cwd=data.parent)
    assert done.returncode == 2
    assert done.stderr.startswith("data/pipeline.yaml:4: BadWordsFilter: ") and f"{data}/words.txt" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_pipeline_file_whose_name_is_not_utf8_is_run(tmp_path):
    (tmp_path / "in.jsonl").write_text('{"text": "a few words"}\n')
    job = os.path.join(tmp_path, os.fsdecode(b"p\xff.yaml"))
    with open(job, "w") as file:
        file.write("stages:\n- JsonlReader: {file_paths: in.jsonl}\n- JsonlWriter: {path: out}\n")
    assert main(["run", job, "--view", "off"]) == 0
    assert json.loads((tmp_path / "out/_gristmill/run.json").read_text())["pipeline"].startswith("name: p\\udcff\n")


@pytest.mark.parametrize("command", ["report", "dropped", "verify", "diff", "explain", "what-if"])
def test_an_output_that_may_not_be_read_is_a_plain_error(command, tmp_path, monkeypatch, capsys):
    import s3fs

    s3fs.S3FileSystem.clear_instance_cache()  # other tests leave file systems with credentials
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("HOME", str(tmp_path))
    more = {"diff": ["s3://bucket/other"], "explain": ["an-id"], "what-if": ["words.min_words=1"]}
    assert main([command, "s3://bucket/output", *more.get(command, [])]) != 0
    assert "gristmill: 's3://bucket/output' cannot be read: NoCredentialsError" in capsys.readouterr().err
