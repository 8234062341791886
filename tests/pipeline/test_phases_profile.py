"""The measurements of a run in several phases, for the next one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.stages.deduplication.corpora import write_jsonl

from gristmill.cli.main import main

PIPELINE = """\
name: p
stages:
  - JsonlReader: {file_paths: in}
  - ExactDeduplication: {}
  - JsonlWriter: {path: out}
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    write_jsonl(tmp_path / "in" / "a.jsonl", [{"text": f"this is text {n // 2}"} for n in range(20)])
    (tmp_path / "p.yaml").write_text(PIPELINE)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_profile_has_the_steps_of_every_phase_and_the_next_run_takes_it(folder, capsys):
    assert main(["run", "p.yaml", "--view", "off", "--cpus", "1", "--save-profile", "profile.json"]) == 0
    stages = json.loads((folder / "profile.json").read_text())["stages"]
    assert any("keys of ExactDeduplication" in name for name in stages)
    assert any("JsonlWriter" in name for name in stages)
    assert all(stage["service_s"] > 0 for stage in stages.values())
    assert main(["run", "p.yaml", "--fresh", "--view", "off", "--cpus", "1", "--profile", "profile.json"]) == 0


def test_a_load_is_refused_before_the_run(folder, capsys):
    assert main(["run", "p.yaml", "--view", "off", "--save-load", "load.json"]) == 2
    assert "'ExactDeduplication' needs all documents first" in capsys.readouterr().err
    assert not (folder / "out").exists()
