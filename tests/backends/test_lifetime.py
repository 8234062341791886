"""Where runs are started from, how they end, and that nothing of them stays."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from gristmill.backends.local import LocalExecutor
from gristmill.errors import PipelineFailed
from gristmill.pipeline import Pipeline
from gristmill.stages.core import ProcessingStage
from gristmill.stages.function_definitions import processing_stage
from gristmill.tasks import Task

DEFINITIONS = """
import os, subprocess, sys, threading, time
from dataclasses import dataclass
from gristmill import LocalExecutor, Pipeline, ProcessingStage, Task, processing_stage

@dataclass
class Numbers(Task[int]):
    data: int = 0

class Held:
    def __init__(self, value):
        self.value = value

twice = lambda x: 2 * x

class Double(ProcessingStage[Numbers, Numbers]):
    def setup(self):
        self.f = twice

    def process(self, task):
        return Numbers(data=self.f(task.data))

@processing_stage
def wrap(task: Numbers) -> Numbers:
    return Numbers(data=Held(task.data).value + 1)

def go(n=20, stages=None, tasks=None, **config):
    pipeline = Pipeline("p", stages=stages or [Double(), wrap])
    tasks = [Numbers(data=i) for i in range(n)] if tasks is None else tasks
    return pipeline.run(LocalExecutor(config={"view": "off", "num_cpus": 2, **config}), initial_tasks=tasks, fuse=False)
"""
CHECK = """
result = go()
assert [t.data for t in result] == [2 * i + 1 for i in range(20)], list(result)
assert all(type(t) is Numbers for t in result)
"""
LINGER = """
class Linger(ProcessingStage[Numbers, Numbers]):
    def setup(self):
        self.path = f"{folder}/{os.getpid()}"
        self.sleepers = [
            subprocess.Popen(["sleep", "300"]),
            subprocess.Popen(["sleep", "300"], start_new_session=True),
        ]
        open(self.path, "w").close()

    def process(self, task):
        open(f"{folder}/started", "w").close()
        time.sleep(nap)
        return task

    def teardown(self):
        os.rename(self.path, self.path + ".torn")
"""


@dataclass
class Numbers(Task[Any]):
    data: Any = None


@processing_stage
def pass_on(task: Numbers) -> Numbers:
    return task


def script(path: Path, *parts: str) -> list[str]:
    path.write_text("\n".join(textwrap.dedent(part) for part in parts))
    return [sys.executable, str(path)]


def call(command: list[str], **kwargs: Any) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, **kwargs)
    assert done.returncode == 0, done.stderr
    return done.stdout


def wait_for(condition: Callable[[], Any], seconds: float = 300.0) -> Any:
    until = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < until, "waited in vain"
        time.sleep(0.02)
    return value


def test_a_plain_script_without_a_main_guard(tmp_path):
    call(script(tmp_path / "plain.py", DEFINITIONS, CHECK))


def test_python_c(tmp_path):
    call([sys.executable, "-c", DEFINITIONS + CHECK])


def test_the_repl(tmp_path):
    blocks = "".join(f"exec({block!r}, globals())\n" for block in (DEFINITIONS, CHECK))
    out = call([sys.executable, "-i", "-q"], input=blocks + "print('came', 'here')\n")
    assert "came here" in out


def test_from_a_thread_while_others_run(tmp_path):
    body = """
    stop = threading.Event()
    busy = [threading.Thread(target=lambda: [None for _ in iter(stop.is_set, True)], daemon=True) for _ in range(2)]
    results = []
    runner = threading.Thread(target=lambda: results.append([t.data for t in go()]))
    for thread in (*busy, runner):
        thread.start()
    while runner.is_alive():
        sum(range(1000))
    stop.set()
    assert results == [[2 * i + 1 for i in range(20)]]
    """
    call(script(tmp_path / "threads.py", DEFINITIONS, body))


def test_two_executors_at_once_in_one_process():
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)

    class Tag(ProcessingStage[Numbers, Numbers]):
        def __init__(self, tag: str) -> None:
            self.tag = tag

        def process(self, task: Numbers) -> Numbers:
            return Numbers(data=[self.tag, task.data, "x" * 10_000])

    found: dict[str, list[Any]] = {}

    def work(tag: str) -> None:
        tasks = [Numbers(data=i) for i in range(300)]
        executor = LocalExecutor(config={"view": "off", "num_cpus": 1})
        result = Pipeline(tag, stages=[Tag(tag), pass_on]).run(executor, initial_tasks=tasks, fuse=False)
        found[tag] = [task.data[:2] for task in result]

    threads = [threading.Thread(target=work, args=(tag,)) for tag in "ab"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    sys.setswitchinterval(before)
    assert found == {tag: [[tag, i] for i in range(300)] for tag in "ab"}


def test_in_a_forked_child(tmp_path):
    body = """
    import multiprocessing
    def child():
        assert [t.data for t in go()] == [2 * i + 1 for i in range(20)]
    process = multiprocessing.get_context("fork").Process(target=child, daemon=True)
    process.start()
    process.join()
    assert process.exitcode == 0
    """
    call(script(tmp_path / "forked.py", DEFINITIONS, body))


def test_a_module_that_workers_cannot_import(tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "mine.py").write_text(DEFINITIONS)
    body = """
    import importlib.util
    spec = importlib.util.spec_from_file_location("some.odd.name", f"{folder}/mine.py")
    mine = sys.modules["some.odd.name"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(mine)
    result = mine.go()
    assert [t.data for t in result] == [2 * i + 1 for i in range(20)]
    assert type(result[0]) is mine.Numbers
    """
    call(script(tmp_path / "main.py", "import sys", f"folder = {str(tmp_path / 'elsewhere')!r}", body))


def test_stdout_is_closed(tmp_path):
    body = """
    @processing_stage
    def talk(task: Numbers) -> Numbers:
        print("a word")
        return task
    sys.stdout.close()
    assert len(go(stages=[talk])) == 20
    """
    call(script(tmp_path / "closed.py", DEFINITIONS, body))
    out = subprocess.run(
        " ".join([*script(tmp_path / "closed2.py", DEFINITIONS, body.replace("sys.stdout.close()", "")), ">&-"]),
        shell=True,
        capture_output=True,
        timeout=300,
    )
    assert out.returncode == 0, out.stderr


def test_jupyter(tmp_path):
    cells = [
        DEFINITIONS,
        CHECK,
        DEFINITIONS.replace('"view": "off"', '"view": "auto"'),
        CHECK,
        "import asyncio\nasync def later():\n    await asyncio.sleep(0.01)\n    return go()\n"
        "assert len(await later()) == 20\nprint('asy' + 'nc')",
        "@processing_stage\ndef talk(task: Numbers) -> Numbers:\n    print('sp' + 'oken')\n    return task\n"
        "_ = go(1, [talk])",
        "import _thread, threading, time\n@processing_stage\ndef slow(task: Numbers) -> Numbers:\n"
        "    time.sleep(50)\n    return task\n"
        "threading.Timer(1.0, _thread.interrupt_main).start()\n"
        "try:\n    go(1, [slow])\nexcept KeyboardInterrupt:\n    print('inter' + 'rupted')",
        CHECK,
    ]
    body = f"""
    import nbclient, nbformat
    cells = [nbformat.v4.new_code_cell(cell) for cell in {cells!r}]
    notebook = nbformat.v4.new_notebook(cells=cells)
    nbclient.NotebookClient(notebook, timeout=300, kernel_name="python3").execute()
    print([cell.outputs for cell in cells])
    """
    out = call(script(tmp_path / "notebook.py", body))
    assert "async" in out and "spoken" in out and "interrupted" in out


def started(tmp_path: Path, *body: str) -> subprocess.Popen[str]:
    """A driver whose workers are in the middle of something, with processes of their own."""
    head = f"folder, nap = {str(tmp_path / 'notes')!r}, 100"
    (tmp_path / "notes").mkdir()
    command = script(tmp_path / "driver.py", head, DEFINITIONS, LINGER, *body)
    environment = {**os.environ, "TMPDIR": str(tmp_path / "tmp")}
    (tmp_path / "tmp").mkdir()
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment, start_new_session=True
    )
    wait_for((tmp_path / "notes" / "started").exists)
    return process


GO = "go(stages=[Linger(), Linger().with_(name='alone', num_workers=1)], num_cpus=3, execution_mode={mode!r})"


def _all_set_up(processes: list[str], notes: Path) -> bool:
    """Whether each worker has begun its setup and ended it: two programs that it started, then a note."""
    sleepers = sum("sleep" in process for process in processes)
    return sleepers > 0 and sleepers == 2 * sum(path.name.isdigit() for path in notes.iterdir())


@pytest.mark.parametrize("mode", ["streaming", "batch"])
def test_ctrl_c_tears_down_and_leaves_nothing(of_run, tmp_path, mode):
    process = started(tmp_path, GO.format(mode=mode))
    wait_for(lambda: _all_set_up(of_run(process.pid), tmp_path / "notes"))  # one that is interrupted has no teardown
    os.killpg(process.pid, signal.SIGINT)
    _, error = process.communicate(timeout=300)
    assert process.returncode == -signal.SIGINT and "KeyboardInterrupt" in error
    notes = [path.name for path in (tmp_path / "notes").iterdir() if path.name != "started"]
    assert notes and all(name.endswith(".torn") for name in notes)
    assert not of_run(process.pid)
    assert not list((tmp_path / "tmp").iterdir())


def test_ctrl_c_while_the_source_blocks(of_run, tmp_path):
    body = """
    def source():
        yield from (Numbers(data=i) for i in range(3))
        open(f"{folder}/started", "w").close()
        time.sleep(100)
    try:
        go(tasks=source())
    except KeyboardInterrupt:
        print("inter" + "rupted")
    """
    process = started(tmp_path, body)
    process.send_signal(signal.SIGINT)
    out, error = process.communicate(timeout=300)
    assert "interrupted" in out, error
    assert not of_run(process.pid)


@pytest.mark.parametrize("mode", ["streaming", "batch"])
def test_a_killed_driver_leaves_nothing(of_run, tmp_path, mode):
    before = set(os.listdir("/dev/shm"))
    process = started(tmp_path, GO.format(mode=mode))
    assert len(of_run(process.pid)) >= 4
    process.kill()
    process.communicate()
    wait_for(lambda: not of_run(process.pid))
    assert not [name for name in set(os.listdir("/dev/shm")) - before if "gristmill" in name]
    assert not list((tmp_path / "tmp").iterdir())


def test_a_driver_killed_while_stages_are_imported(of_run, tmp_path):
    (tmp_path / "slow_import.py").write_text(
        "import os, time\nfrom gristmill import ProcessingStage\n"
        "if 'GRISTMILL_RUN' in os.environ:\n"
        f"    open({str(tmp_path / 'notes' / 'started')!r}, 'w').close()\n"
        "    for _ in range(1000):\n        time.sleep(0.1)\n"
        "class Slow(ProcessingStage):\n    def process(self, task):\n        return task\n"
    )
    process = started(tmp_path, "import slow_import", "go(stages=[slow_import.Slow()])")
    process.kill()
    process.communicate()
    wait_for(lambda: not of_run(process.pid), 3)


def test_success_and_failure_leave_nothing(of_run, tmp_path):
    body = """
    @processing_stage
    def fail(task: Numbers) -> Numbers:
        subprocess.Popen(["sleep", "300"], start_new_session=True)
        assert task.data < limit
        return task
    def descendants():
        import psutil
        return psutil.Process().children(recursive=True)
    limit = 100
    go(stages=[fail])
    assert not descendants()
    limit = 3
    try:
        go(stages=[fail])
    except Exception as error:
        assert "AssertionError" in str(error), error
    else:
        raise SystemExit("no failure")
    assert not descendants()
    print(os.getpid())
    """
    (tmp_path / "tmp").mkdir()
    command = script(tmp_path / "ends.py", DEFINITIONS, body)
    pid = int(call(command, env={**os.environ, "TMPDIR": str(tmp_path / "tmp")}))
    assert not of_run(pid)
    assert not list((tmp_path / "tmp").iterdir())


def test_the_interrupt_handler_is_given_back(run):
    before = signal.getsignal(signal.SIGINT)
    run([pass_on], [Numbers(data=1)])
    assert signal.getsignal(signal.SIGINT) is before

    @processing_stage
    def fail(task: Numbers) -> Numbers:
        raise ValueError

    with pytest.raises(PipelineFailed):
        run([fail], [Numbers(data=1)])
    assert signal.getsignal(signal.SIGINT) is before


def test_a_polite_order_to_end_tears_down_and_ends_the_process_by_it(tmp_path):
    """Batch systems send SIGTERM and wait a while before they kill."""
    script = tmp_path / "job.py"
    script.write_text(
        f"""
import pathlib, time
from gristmill import LocalExecutor, Pipeline, ProcessingStage, Task

class Slow(ProcessingStage[Task, Task]):
    name = "slow"
    def setup(self):
        self.up = pathlib.Path({str(tmp_path)!r}, "up")
    def process(self, task):
        self.up.touch()
        time.sleep(300)
        return task
    def teardown(self):
        pathlib.Path({str(tmp_path)!r}, "down").touch()

Pipeline("p", stages=[Slow()]).run(LocalExecutor({{"view": "off", "num_cpus": 1}}), [Task(), Task()])
"""
    )
    process = subprocess.Popen([sys.executable, str(script)])
    try:
        wait_for((tmp_path / "up").exists)
        process.send_signal(signal.SIGTERM)
        assert process.wait(300) == -signal.SIGTERM
    finally:
        process.kill()
    assert (tmp_path / "down").exists()
