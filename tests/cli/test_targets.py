"""The contents of a target besides its pipeline."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

FILE = """
from gristmill.pipeline import Pipeline
from gristmill.stages.function_definitions import processing_stage
from gristmill.tasks import Task

@processing_stage(name="show")
def show(task: Task) -> Task:
    print("ran", task.data)
    return task

pipeline = Pipeline("p", stages=[show])
"""


def gristmill(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "gristmill.cli.main", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)


def test_initial_tasks_of_the_file_are_run(tmp_path: Path) -> None:
    for line in ("initial_tasks = [Task(data=7)]", "def initial_tasks():\n    yield Task(data=7)"):
        (tmp_path / "job.py").write_text(FILE + line)
        done = gristmill("run", str(tmp_path / "job.py"), "--view", "off")
        assert done.returncode == 0, done.stderr
        assert "ran 7" in done.stdout


def test_a_file_that_runs_its_pipeline_when_loaded_is_refused_before_anything_runs(tmp_path: Path) -> None:
    (tmp_path / "job.py").write_text(FILE + "pipeline.run(initial_tasks=[Task(data=7)])")
    for command in ("run", "plan"):
        done = gristmill(command, str(tmp_path / "job.py"))
        assert done.returncode == 2
        assert "while it is loaded" in done.stderr and "Traceback" not in done.stderr
        assert "ran" not in done.stdout
