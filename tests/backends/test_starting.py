"""What is started while a run is still planned."""

import os
import subprocess
import sys

import pytest

from gristmill.backends.local import LocalExecutor
from gristmill.backends.local.executor import modules_of
from gristmill.errors import PlanError
from gristmill.pipeline import Pipeline
from gristmill.stages.core import ProcessingStage
from gristmill.stages.text.io import JsonlReader
from gristmill.tasks import Task


class Mine(ProcessingStage[Task, Task]):
    loads = ("antigravity",)

    def process(self, task):
        return task


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_the_supervisor_runs_before_there_is_a_plan_and_is_gone_if_there_never_is_one():
    with pytest.raises(PlanError), LocalExecutor().starting([]) as executor:
        pid = executor._processes.process.pid
        assert is_running(pid)
        raise PlanError("there is none")
    assert not is_running(pid)


def test_one_executor_runs_several_pipelines_at_once():
    executor = LocalExecutor({"num_cpus": 1, "view": "off"})
    with executor.starting([]) as one, executor.starting([]) as other:
        pids = [x._processes.process.pid for x in (one, other)]
        assert all(map(is_running, pids)) and pids[0] != pids[1]
    result = Pipeline("p", stages=[Mine()]).run(executor, [Task(data=1)])
    assert [task.data for task in result] == [1]


def test_only_modules_of_our_own_are_imported_ahead():
    names = modules_of([JsonlReader("x"), Mine()])
    assert "gristmill.stages.text.io.reader.records" in names
    assert "antigravity" not in names and Mine.__module__ not in names


def test_what_is_imported_ahead_is_there_when_stages_are_loaded_and_may_be_missing():
    code = (
        "import sys; from gristmill.backends.local.supervisor import import_ahead; "
        "import_ahead(['no.such.module', 'gristmill.stages.text.io.reader.records']); print('pyarrow' in sys.modules)"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    found = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=60)
    assert found.stdout == "True\n", found.stderr


def test_a_driver_starts_the_supervisor_before_it_imports_the_scheduler_or_numpy_or_pyarrow():
    code = (
        "import sys; from gristmill.backends.local import LocalExecutor; from gristmill.pipeline import Pipeline; "
        "from gristmill.stages.text.io import JsonlReader, JsonlWriter; "
        "from gristmill.stages.text.recipes import recipe; recipe('gopher-quality'); LocalExecutor(); "
        "print({'numpy', 'pyarrow', 'gristmill.scheduling'} & set(sys.modules))"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    found = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=60)
    assert found.stdout == "set()\n", found.stderr
