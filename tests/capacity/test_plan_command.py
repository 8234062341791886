"""``gristmill plan`` with the options of a job."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from gristmill.cli.main import main

PLAIN = """
from dataclasses import dataclass
from gristmill import Pipeline, ProcessingStage, Resources
from gristmill.tasks import Task

@dataclass
class Number(Task[int]):
    data: int = 0

class Double(ProcessingStage[Number, Number]):
    name = "double"
    def process(self, task):
        return task

class OnGpu(Double):
    name = "on gpu"
    resources = Resources(gpus=1)
    resources_without_gpu = WITHOUT

pipeline = Pipeline("numbers", stages=[Double(), OnGpu()])
initial_tasks = [Number(data=i) for i in range(60)]
"""


def plan(capsys: pytest.CaptureFixture[str], *args: object) -> str:
    """Run the command. Return what it prints; it must succeed."""
    status = main(["plan", *map(str, args)])
    found = capsys.readouterr()
    assert status == 0, found.err
    return found.out


def refused(capsys: pytest.CaptureFixture[str], *args: object) -> str:
    """Return the message of a command that must be refused."""
    assert main(["plan", *map(str, args)]) == 2
    found = capsys.readouterr()
    assert not found.out
    assert "Traceback" not in found.err
    return " ".join(found.err.split())


@pytest.fixture
def tasks_file(tmp_path: Path) -> Path:
    path = tmp_path / "counting_numbers.py"
    path.write_text(PLAIN.replace("WITHOUT", "None"))
    return path


def test_without_options_the_steps_are_shown(
    pipeline_file: Callable[..., Path], capsys: pytest.CaptureFixture[str]
) -> None:
    shown = plan(capsys, pipeline_file())
    assert "step 1: 2 stages fused" in shown
    assert "peak memory" not in shown


def test_a_job_is_forecast_on_other_nodes(
    pipeline_file: Callable[..., Path], capsys: pytest.CaptureFixture[str], store: Path, tmp_path: Path
) -> None:
    path = pipeline_file("FuzzyDeduplication: {}")
    shown = plan(capsys, path, "--sample", 0.5, "--nodes", "2x4c24gb", "--deadline", "1h", "--cpus", 2)
    for words in (
        "on 2x4c24gb",
        "by a sample of",
        "decisions",
        "peak memory",
        "a node has 24 GB",
        "disk",
        "first bottleneck: ",
        "one more node of 4c24gb: ",
        "bands_per_iteration 20",
        "within 1 h",
    ):
        assert words in shown, words
    assert not (tmp_path / "out").exists()
    assert json.loads(store.read_text())["sampled"] is True


def test_json_holds_the_whole_forecast(pipeline_file: Callable[..., Path], capsys: pytest.CaptureFixture[str]) -> None:
    found = json.loads(plan(capsys, pipeline_file(), "--sample", 1, "--json", "--cpus", 2))
    assert found["documents"] == 2400
    assert found["low_s"] <= found["seconds"] <= found["high_s"]
    assert found["bottleneck"]["resource"] == "CPU"
    assert found["measured"]["phases"][0]["steps"][0]["tasks"] > 0
    assert found["block_size"] is not None


def test_a_saved_profile_replaces_the_sample_and_balances_a_run(
    pipeline_file: Callable[..., Path], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path, profile = pipeline_file(), tmp_path / "profile.json"
    first = json.loads(plan(capsys, path, "--sample", 0.5, "--json", "--save-profile", profile, "--cpus", 2))
    again = json.loads(plan(capsys, path, "--profile", profile, "--json", "--nodes", first["nodes"]))
    assert again["phases_s"] == pytest.approx(first["phases_s"], rel=0.02)
    assert main(["run", str(path), "--profile", str(profile), "--view", "off"]) == 0


def test_auto_takes_the_profile_of_an_earlier_run(
    pipeline_file: Callable[..., Path], capsys: pytest.CaptureFixture[str], store: Path
) -> None:
    path = pipeline_file()
    assert "has no run of this pipeline with these settings" in refused(capsys, path, "--profile", "auto")
    assert main(["run", str(path), "--view", "off"]) == 0
    capsys.readouterr()
    assert "by a whole run" in plan(capsys, path, "--profile", "auto", "--nodes", "4x8c")
    assert main(["run", str(path), "--view", "off", "--fresh", "--profile", "auto"]) == 0
    assert len(store.read_text().splitlines()) == 2
    assert main(["run", str(path), "--view", "off", "--fresh", "--no-profile-store"]) == 0
    assert len(store.read_text().splitlines()) == 2


def test_a_damaged_store_is_reported(
    pipeline_file: Callable[..., Path], capsys: pytest.CaptureFixture[str], store: Path
) -> None:
    store.parent.mkdir()
    store.write_bytes(b"\x00\xff nothing\n{}\n")
    assert "(2 of its lines are damaged)" in refused(capsys, pipeline_file(), "--profile", "auto")
    store.unlink()
    store.mkdir()
    assert "cannot be read: Is a directory. Set GRISTMILL_PROFILE_STORE" in refused(
        capsys, pipeline_file(), "--profile", "auto"
    )
    plan(capsys, pipeline_file(), "--sample", 0.2, "--cpus", 2)  # a sample needs no store


def test_gpus_that_only_count_workers_are_planned_as_they_are(
    tasks_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shown = plan(capsys, tasks_file, "--sample", 0.5, "--cpus", 2, "--gpus", 2, "--nodes", "3x8c4g")
    assert "GPUs busy" in shown
    assert "how fast they are on h100 is unknown" in refused(
        capsys, tasks_file, "--sample", 0.5, "--cpus", 2, "--gpus", 2, "--nodes", "3x8c4g", "--gpu", "h100"
    )


def test_nodes_without_the_gpus_that_a_stage_needs_are_refused(
    tasks_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = refused(capsys, tasks_file, "--sample", 0.5, "--cpus", 2, "--gpus", 2, "--nodes", "3x8c")
    assert "'on gpu' needs a GPU, and the nodes have none" in words


def test_a_gpu_stage_that_was_measured_on_cpus_is_not_planned_for_gpus(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "counting_both.py"
    path.write_text(PLAIN.replace("WITHOUT", "Resources(cpus=1)"))
    words = refused(capsys, path, "--sample", 0.5, "--cpus", 2, "--gpus", 0, "--nodes", "3x8c4g")
    assert "'on gpu' was measured without a GPU" in words
    plan(capsys, path, "--sample", 0.5, "--cpus", 2, "--gpus", 0, "--nodes", "3x8c")


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["--data", "/no/such/data"], "/no/such/data"),
        (["--nodes", "8y4"], "--nodes: '8y4' is not a number of nodes; write 8x96c8g"),
        (["--nodes", "4x0.5c"], "the nodes are too small"),
        (["--profile", "/no/such/profile"], "/no/such/profile cannot be read: No such file"),
        (["--sample", "0.2", "--save-profile", "/no/such/folder/x"], "/no/such/folder/x cannot be written"),
        (["--gpu", "z9000"], "'z9000' is not a kind of GPU"),
    ],
)
def test_bad_input_is_explained(
    args: list[str], words: str, pipeline_file: Callable[..., Path], capsys: pytest.CaptureFixture[str]
) -> None:
    more = [] if "--profile" in args else ["--sample", "0.2", "--cpus", "2"]
    assert words in refused(capsys, pipeline_file(), *args, *more)


def test_a_profile_that_is_none_is_refused(
    pipeline_file: Callable[..., Path], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    other = tmp_path / "x.json"
    other.write_text('{"stages": {}}')
    assert "is not a measured run" in refused(capsys, pipeline_file(), "--profile", other)
    other.write_text("{")
    assert "is not JSON: give what 'gristmill plan --save-profile FILE' wrote" in refused(
        capsys, pipeline_file(), "--profile", other
    )


@pytest.mark.parametrize(
    "args", [["--deadline", "soon"], ["--sample", "2"], ["--sample-seconds", "x"], ["--gpus", "-1"]]
)
def test_options_without_sense_are_refused(args: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as raised:
        main(["plan", "x.yaml", *args])
    assert raised.value.code == 2
    assert args[1] in capsys.readouterr().err
