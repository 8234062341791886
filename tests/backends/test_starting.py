"""The parts that are started while a run is still planned."""

import os
import signal
import subprocess
import sys

import pytest

from gristmill.backends.local import LocalExecutor
from gristmill.backends.local.executor import modules_of
from gristmill.errors import PipelineError, PlanError
from gristmill.pipeline import Pipeline
from gristmill.pipeline.planner import PipelineInput, plan_of
from gristmill.stages.core import ProcessingStage
from gristmill.stages.text.io import JsonlReader
from gristmill.tasks import Task


class Mine(ProcessingStage[Task, Task]):
    loads = ("antigravity",)

    def process(self, task):
        return task


class NoSetup(Mine):
    def setup(self, worker_metadata=None):
        raise RuntimeError("cannot be set up")


class Say(Mine):
    """Its last word is no whole line."""

    def __init__(self, words: str) -> None:
        self.words = words

    def process(self, task):
        print(self.words)
        return task

    def teardown(self):
        print(f"{self.words}, torn down", end="", flush=True)


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


class Report(ProcessingStage[Task, Task]):
    """Who forked the worker, and a program that outlives the run."""

    def __init__(self, leaves: bool) -> None:
        self.leaves = leaves

    def process(self, task):
        left = subprocess.Popen(["sleep", "600"]).pid if self.leaves else 0
        return Task(data=(os.getppid(), left))


def test_plans_that_follow_each_other_share_the_supervisor_and_nothing_else():
    with LocalExecutor({"num_cpus": 2, "view": "off"}).starting([]) as executor:
        with executor.several():
            found = []
            for leaves in (True, False):
                plan = plan_of("p", [Report(leaves)], PipelineInput(Task()))
                record = executor.execute(plan, [Task(data=n, task_id=str(n)) for n in range(4)], True)
                found += [task.data for task in record.outputs]
                assert not executor._processes.workers and not executor._processes.arenas
            supervisor, programs = {pid for pid, _ in found}, [pid for _, pid in found if pid]
            assert len(found) == 8 and len(programs) == 4
            assert supervisor == {executor._processes.process.pid}
            assert not any(map(is_running, programs))
        assert not is_running(*supervisor)


def test_what_is_printed_in_a_run_is_shown_before_the_next_begins(capfd):
    with LocalExecutor({"num_cpus": 1, "view": "off"}).starting([]) as executor, executor.several():
        for n in range(2):
            executor.execute(plan_of("p", [Say(f"run {n}")], PipelineInput(Task())), [Task()], None)
            assert capfd.readouterr().out.split("\n") == [f"run {n}", f"run {n}, torn down", ""]


def test_a_plan_with_nothing_to_do_leaves_nothing_to_the_next():
    with LocalExecutor({"num_cpus": 1, "view": "off"}).starting([]) as executor, executor.several():
        for tasks in ([], [Task()], []):
            record = executor.execute(plan_of("p", [Report(False)], PipelineInput(Task())), tasks, True)
            assert len(record.outputs) == len(tasks)


def test_a_run_ends_before_its_process_after_a_signal(tmp_path):
    script = tmp_path / "job.py"
    script.write_text(
        """
import sys, time
from gristmill import LocalExecutor, ProcessingStage, Task
from gristmill.pipeline.planner import PipelineInput, plan_of

class Slow(ProcessingStage[Task, Task]):
    def process(self, task):
        print("works", flush=True)
        time.sleep(30)
        return task
    def teardown(self):
        print("torn down", flush=True)

with LocalExecutor({"view": "off", "num_cpus": 1}).starting([]) as executor, executor.several():
    print(executor._processes.process.pid, flush=True)
    executor.execute(plan_of("p", [Slow()], PipelineInput(Task())), [Task()], None)
"""
    )
    process = subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, text=True)
    try:
        supervisor = int(process.stdout.readline())
        assert process.stdout.readline() == "works\n"
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == -signal.SIGTERM
        assert process.stdout.readline() == "torn down\n"
        assert not is_running(supervisor)
    finally:
        process.kill()


def test_a_plan_behind_one_that_failed_has_a_supervisor_of_its_own():
    with LocalExecutor({"num_cpus": 1, "view": "off"}).starting([]) as executor, executor.several():
        first = executor._processes.process.pid
        with pytest.raises(PipelineError, match="cannot be set up"):
            executor.execute(plan_of("p", [NoSetup()], PipelineInput(Task())), [Task()], None)
        assert not is_running(first)
        record = executor.execute(plan_of("p", [Report(False)], PipelineInput(Task())), [Task()], True)
        assert [pid for pid, _ in (task.data for task in record.outputs)] == [executor._processes.process.pid]


def test_a_supervisor_that_is_killed_between_two_plans_is_replaced():
    with LocalExecutor({"num_cpus": 1, "view": "off"}).starting([]) as executor, executor.several():
        pids = []
        for _ in range(2):
            record = executor.execute(plan_of("p", [Report(False)], PipelineInput(Task())), [Task()], True)
            pids += [task.data[0] for task in record.outputs]
            os.kill(executor._processes.process.pid, signal.SIGKILL)
        assert len(set(pids)) == 2


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
    found = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=300)
    assert found.stdout == "True\n", found.stderr


def test_a_driver_starts_the_supervisor_before_it_imports_the_scheduler_or_numpy_or_pyarrow():
    code = (
        "import sys; from gristmill.backends.local import LocalExecutor; from gristmill.pipeline import Pipeline; "
        "from gristmill.stages.text.io import JsonlReader, JsonlWriter; "
        "from gristmill.stages.text.recipes import recipe; recipe('gopher-quality'); LocalExecutor(); "
        "print({'numpy', 'pyarrow', 'gristmill.scheduling'} & set(sys.modules))"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    found = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=300)
    assert found.stdout == "set()\n", found.stderr
