from __future__ import annotations

import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gristmill.backends.base import Executor, Failure, RunRecord, StageStats, StepStats
from gristmill.cli.main import main
from gristmill.scheduling.profile import Profile
from gristmill.scheduling.simulator import read_load
from gristmill.sizes import parse_size

PIPELINE = """
    from dataclasses import dataclass
    from gristmill.pipeline import Pipeline
    from gristmill.stages.core import ProcessingStage
    from gristmill.tasks import EmptyTask, Task
    import sibling

    @dataclass
    class Number(Task[int]):
        data: int = 0

    class Count(ProcessingStage[EmptyTask, Number]):
        name = "count"
        def process(self, task):
            return [Number(data=i) for i in range(sibling.HOW_MANY)]

    class Double(ProcessingStage[Number, Number]):
        name = "double"
        def process(self, task):
            if task.data == sibling.BAD:
                raise ValueError("cannot double this")
            task.data *= 2
            return task

    pipeline = Pipeline("numbers", stages=[Count(), Double(), Double().with_(name="again")])
    nothing = 3

    def make():
        return pipeline

    def make_with(size):
        return pipeline

    def make_wrong():
        return 3
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a pipeline and a module beside it, in which the test runs."""
    (tmp_path / "job.py").write_text(textwrap.dedent(PIPELINE))
    (tmp_path / "sibling.py").write_text("HOW_MANY = 10\nBAD = -1\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def gristmill(*args: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "gristmill.cli.main", *args]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)


class TestUsage:
    def test_help_names_the_commands(self):
        done = gristmill("--help")
        assert done.returncode == 0
        assert "run" in done.stdout and "plan" in done.stdout

    def test_help_is_quick_and_loads_nothing_heavy(self):
        code = (
            "import sys, time\n"
            "from gristmill.cli.main import main\n"
            "try: main(['--help'])\n"
            "except SystemExit: pass\n"
            "heavy = {'pyarrow', 'numpy', 'pandas', 'rich', 'cloudpickle', 'torch', 'ray'} & set(sys.modules)\n"
            "assert not heavy, heavy\n"
            "assert time.process_time() < 0.6, time.process_time()\n"  # 0.1 s here; the bound is for slow machines
        )
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr

    def test_version(self):
        from gristmill import __version__

        assert gristmill("--version").stdout == f"gristmill {__version__}\n"

    @pytest.mark.parametrize(
        ("args", "says"),
        [
            ([], "required: COMMAND"),
            (["rnu", "job.py"], "there is no command 'rnu'. Did you mean 'run'"),
            (["run"], "required: TARGET"),
            (["run", "job.py", "--cpus", "0"], "'0' is not a number above 0"),
            (["run", "job.py", "--cpus", "nan"], "'nan' is not a number above 0"),
            (["run", "job.py", "--gpus", "-1"], "'-1' is not a whole number of 0 or more"),
            (["run", "job.py", "--memory-limit", "lots"], "'lots' is not a size"),
            (["run", "job.py", "--view", "lve"], "invalid choice: 'lve'"),
            (["run", "job.py", "--save-profile", "no/p.json"], "no/p.json cannot be written: there is no folder no"),
            (["run", "job.py", "--save-load", "."], ". cannot be written: it is a folder"),
            (["run", "jbo.py"], "there is no file jbo.py. Did you mean job.py?"),
            (["run", "no/such.py"], "there is no file no/such.py"),
            (["run", "/dev/null"], "/dev/null is not a regular file"),
            (["run", "jobs.of.mine"], "there is no module 'jobs'"),
            (["run", "not a module"], "'not a module'"),
            (["run", "job.py:pipelin"], "job.py has no 'pipelin'. Did you mean job.py:pipeline?"),
            (["run", "job.py:zzz"], "It has these pipelines: pipeline"),
            (["run", "job.py:"], "is not a target"),
            (["run", ":pipeline"], "is not a target"),
            (["run", "job.py:nothing"], "is a int, not a Pipeline"),
            (["run", "job.py:Count"], "not a Pipeline"),
            (["run", "job.py:make_with"], "needs arguments (size)"),
            (["run", "job.py:make_wrong"], "returned a int, not a Pipeline"),
            (["plan", "jbo.py"], "Did you mean job.py?"),
        ],
    )
    def test_wrong_usage_is_one_line_and_exit_2(self, folder, args, says):
        done = gristmill(*args)
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr.count("\n") == 1
        assert done.stderr.startswith("gristmill: ")
        assert says in done.stderr

    def test_a_syntax_error_has_its_place(self, folder):
        (folder / "broken.py").write_text("x = 1\ny = (\n")
        done = gristmill("run", "broken.py")
        assert done.returncode == 2
        assert "broken.py:2: " in done.stderr and done.stderr.count("\n") == 1

    def test_what_the_target_itself_cannot_import_is_its_own_error(self, folder):
        (folder / "lacking.py").write_text("import no_such_thing\n")
        done = gristmill("run", "lacking.py")
        assert "No module named 'no_such_thing'" in done.stderr
        assert "lacking.py" in done.stderr


@pytest.mark.parametrize(
    ("text", "size"), [("8GB", 8 << 30), ("1.5GiB", 3 * 2**29), ("512 mib", 2**29), ("4096", 4096), ("2k", 2048)]
)
def test_sizes(text, size):
    assert parse_size(text) == size


@pytest.mark.parametrize("target", ["job.py", "job.py:make", "job", "job:pipeline"])
def test_plan_shows_the_steps(folder, target):
    done = gristmill("plan", target)
    assert done.returncode == 0, done.stderr
    assert "count" in done.stdout and "double" in done.stdout


def test_the_command_finds_modules_in_the_current_folder(folder):
    """As ``python -m`` does; the installed script would otherwise look only beside itself."""
    code = "import sys; sys.path.remove(''); from gristmill.cli.main import main; sys.exit(main(['plan', 'job']))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_plan_of_a_pipeline_that_cannot_run(folder):
    with (folder / "job.py").open("a") as file:
        file.write("\nwrong = Pipeline('wrong', stages=[Double(), Count()])\n")
    done = gristmill("plan", "job.py:wrong")
    assert done.returncode == 1
    assert "Count" in done.stdout or "count" in done.stdout
    assert "Traceback" not in done.stderr


class TestOptions:
    """The executor and run options that the command line makes, with an executor that only records them."""

    @pytest.fixture
    def noted(self, folder, monkeypatch) -> SimpleNamespace:
        note = SimpleNamespace(config=None, steps=None, record={}, interrupt=False)

        class Note(Executor):
            def __init__(self, config: dict[str, Any]) -> None:
                note.config = config

            ignore_failures = property(lambda self: note.config.get("ignore_failures", False))

            def execute(self, plan, initial_tasks, keep_outputs):
                note.steps = len(plan.steps)
                if note.interrupt:
                    raise KeyboardInterrupt
                steps = [StepStats(s.name, [StageStats(stage.name) for stage in s.stages]) for s in plan.steps]
                known = dict(failures=[], failures_total=0) | note.record
                return RunRecord("numbers", steps, 1.0, None, decisions=[], peak_bytes_in_flight=0, budget_bytes=1,
                                 peak_memory_bytes=0, worker_deaths=0, outputs=None, **known)  # fmt: skip

        monkeypatch.setitem(sys.modules, "gristmill.backends.local", SimpleNamespace(LocalExecutor=Note))
        return note

    def test_none_given_leaves_the_defaults(self, noted, capsys):
        assert main(["run", "job.py"]) == 0
        assert noted.config == {}
        assert noted.steps == 2
        assert "numbers" in capsys.readouterr().out

    def test_all_given(self, noted):
        options = (
            "--cpus 4 --gpus 0 --memory-limit 8GB --batch --ignore-failures --view lines --no-fuse --profile p.json"
        )
        assert main(["run", "job.py", *options.split()]) == 0
        assert noted.config == {
            "num_cpus": 4.0,
            "num_gpus": 0,
            "memory_limit": 8 << 30,
            "execution_mode": "batch",
            "ignore_failures": True,
            "view": "lines",
            "profile": "p.json",
        }
        assert noted.steps == 3

    def test_the_exit_status_is_1_after_a_failure_and_0_if_failures_are_ignored(self, noted, capsys):
        noted.record = {"failures": [Failure("7", "double", "ValueError: no", "", (), 1)], "failures_total": 1}
        assert main(["run", "job.py"]) == 1
        assert "ValueError: no" in capsys.readouterr().err
        assert main(["run", "job.py", "--ignore-failures"]) == 0

    def test_ctrl_c_is_130_without_a_trace(self, noted, capsys):
        noted.interrupt = True
        assert main(["run", "job.py"]) == 130
        assert capsys.readouterr().err == "gristmill: interrupted\n"

    def test_an_interrupted_run_is_130(self, noted):
        noted.record = {"interrupted": True}
        assert main(["run", "job.py"]) == 130


class TestRuns:
    """With the real executor, in real processes."""

    @pytest.mark.parametrize("target", ["job.py", "job.py:make", "job"])
    def test_a_run(self, folder, target):
        done = gristmill("run", target, "--cpus", "2")
        assert done.returncode == 0, done.stderr
        assert "double" in done.stdout

    def test_what_it_measured_is_saved_and_used_again(self, folder):
        options = ("--cpus", "2", "--view", "off")
        done = gristmill("run", "job.py", *options, "--save-profile", "p.json", "--save-load", "load.json")
        assert (done.returncode, done.stderr) == (0, "")
        assert set(Profile.read("p.json").stages) == {"count", "double + again"}
        load = read_load("load.json")
        assert (load.name, load.inputs, [stage.name for stage in load.stages]) == (
            "numbers",
            1,
            ["count", "double + again"],
        )
        assert gristmill("run", "job.py", *options, "--profile", "p.json").returncode == 0

    def test_a_profile_that_cannot_be_read(self, folder):
        (folder / "p.json").write_text("{")
        done = gristmill("run", "job.py", "--profile", "p.json")
        assert (done.returncode, done.stdout) == (1, "")
        assert done.stderr.startswith("gristmill: profile: p.json is not JSON")

    def test_from_another_folder(self, folder, monkeypatch):
        monkeypatch.chdir("/")
        done = gristmill("run", str(folder / "job.py"), "--cpus", "2", "--view", "off")
        assert (done.returncode, done.stderr) == (0, "")

    def test_a_failing_task(self, folder):
        (folder / "sibling.py").write_text("HOW_MANY = 10\nBAD = 7\n")
        done = gristmill("run", "job.py", "--cpus", "2", "--view", "off")
        assert done.returncode == 1
        assert "cannot double this" in done.stderr
        assert "gristmill/cli" not in done.stderr
        done = gristmill("run", "job.py", "--cpus", "2", "--view", "off", "--ignore-failures")
        assert done.returncode == 0, done.stderr

    def test_ctrl_c(self, folder):
        (folder / "sibling.py").write_text(
            "import pathlib, time\nHOW_MANY = 100\nclass Slow:\n"
            "    def __eq__(self, other):\n"
            f"        pathlib.Path({str(folder / 'began')!r}).touch()\n"
            "        time.sleep(1)\n"
            "BAD = Slow()\n"
        )
        command = [sys.executable, "-m", "gristmill.cli.main", "run", "job.py", "--cpus", "1", "--view", "lines"]
        process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        while not (folder / "began").exists() and process.poll() is None:
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=300)
        assert process.returncode == 130, errors
        assert "Traceback" not in errors


def test_a_file_that_is_no_pipeline_is_an_error(tmp_path, capsys):
    (tmp_path / "data.jsonl").write_text("{}")
    assert main(["run", str(tmp_path / "data.jsonl")]) == 2
    assert "is no pipeline: name a YAML file" in capsys.readouterr().err


def test_a_folder_is_no_pipeline_and_the_file_in_it_is_suggested(tmp_path, capsys):
    (tmp_path / "curate").mkdir()
    assert main(["run", str(tmp_path / "curate")]) == 2
    assert "curate is a folder: name the file of the pipeline\n" in capsys.readouterr().err
    (tmp_path / "curate" / "clean.yaml").write_text("stages: []")
    assert main(["run", str(tmp_path / "curate")]) == 2
    assert f"such as {tmp_path / 'curate' / 'clean.yaml'}" in capsys.readouterr().err


def test_a_reader_that_was_not_told_what_to_read(tmp_path, capsys):
    (tmp_path / "p.yaml").write_text("name: p\nstages: [{JsonlReader: {}}, {JsonlWriter: {path: out}}]\n")
    assert main(["run", str(tmp_path / "p.yaml")]) == 1
    assert "file_paths is missing" in capsys.readouterr().err


def test_output_without_a_reader_is_no_error(tmp_path):
    (tmp_path / "p.yaml").write_text("name: p\nstages: [{JsonlReader: {file_paths: .}}, {JsonlWriter: {path: out}}]\n")
    command = f"{sys.executable} -m gristmill.cli.main plan {tmp_path / 'p.yaml'} | true"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, cwd=tmp_path)
    assert done.stderr == ""
