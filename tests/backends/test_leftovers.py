"""The resources that a run holds, and those that it leaves in the process that called it."""

from __future__ import annotations

import importlib.util
import resource
import sys
import threading
import time
from dataclasses import dataclass
from typing import Any

import cloudpickle
import pyarrow as pa
import pytest

from gristmill.backends.engine.account import FailureLines
from gristmill.backends.engine.names import LocalNames
from gristmill.backends.local.driver import LocalDriver as Driver
from gristmill.backends.local.store import LocalStore as Store
from gristmill.errors import PipelineFailed
from gristmill.stages.core import ProcessingStage
from gristmill.stages.function_definitions import processing_stage
from gristmill.tasks import DocumentBatch, Task


@dataclass
class Numbers(Task[Any]):
    data: Any = None


@processing_stage
def pass_on(task: Numbers) -> Numbers:
    return task


@processing_stage(name="pass on again")
def pass_on_again(task: Numbers) -> Numbers:
    return task


class RefuseSevens(ProcessingStage[DocumentBatch, DocumentBatch]):
    max_attempts = 2

    def process(self, batch: DocumentBatch) -> DocumentBatch:
        assert 7 not in batch.to_pyarrow()["x"].to_pylist()
        return batch


class FailOrStream(ProcessingStage[Numbers, Numbers]):
    def process(self, task):  # type: ignore[no-untyped-def]
        if task.data == 1:
            time.sleep(0.5)
            raise ValueError("bad")
        for i in range(30):
            time.sleep(0.1)
            yield Numbers(data=i)


@pytest.fixture
def drivers(monkeypatch):
    """The drivers of runs that have ended."""
    seen: list[Driver] = []
    record = Driver.record
    monkeypatch.setattr(Driver, "record", lambda self: seen.append(self) or record(self))  # type: ignore[func-returns-value]
    return seen


def test_a_failure_beside_a_generator_that_is_cut_short_is_reported(run):
    with pytest.raises(PipelineFailed, match="ValueError: bad"):
        run([pass_on, FailOrStream()], [Numbers(data=0), Numbers(data=1)], max_attempts=1)


def test_errors_of_slices_are_let_go(run, drivers):
    batches = [DocumentBatch(pa.table({"x": list(range(64))})) for _ in range(20)]
    result = run([RefuseSevens()], batches, ignore_failures=True)
    (driver,) = drivers
    assert len(result.failures) == 20
    assert not driver.reports.errors and not driver.reports.running and not driver.account._open


def test_in_batch_mode_data_waits_on_disk_not_in_the_driver(run, monkeypatch):
    held = []
    release = Store.release
    monkeypatch.setattr(
        Store, "release", lambda self, task: held.append(self.refs[task].payload) or release(self, task)
    )
    tasks = [Numbers(data=bytes(5000)) for _ in range(20)]
    result = run([pass_on, pass_on_again], tasks, fuse=False, execution_mode="batch")
    assert [x.data for x in result] == [bytes(5000)] * 20
    assert len(held) > 20 and not any(held)


def test_a_run_leaves_its_caller_as_it_was(run, tmp_path, monkeypatch):
    path = tmp_path / "a_job.py"
    path.write_text(
        "from gristmill import Task, processing_stage\n\n"
        "@processing_stage\ndef job(task: Task) -> Task:\n    return task\n"
    )
    spec = importlib.util.spec_from_file_location("a_job", path)
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "a_job", module)
    spec.loader.exec_module(module)
    registered = cloudpickle.list_registry_pickle_by_value()
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (512, before[1]))
    try:
        assert len(list(run([module.job], [Task(1)]))) == 1
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (512, before[1])
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    assert cloudpickle.list_registry_pickle_by_value() == registered


def test_names_stay_registered_while_another_run_needs_them(monkeypatch):
    module = type(threading)("made_up")
    module.__file__ = "/nowhere/made_up.py"
    mine = type(threading)("mine")
    mine.__file__ = "/nowhere/mine.py"
    for x in (module, mine):
        monkeypatch.setitem(sys.modules, x.__name__, x)
    cloudpickle.register_pickle_by_value(mine)
    try:
        first, second = LocalNames(), LocalNames()
        first.close()
        assert "made_up" in cloudpickle.list_registry_pickle_by_value()
        second.close()
        assert "made_up" not in cloudpickle.list_registry_pickle_by_value()
        assert "mine" in cloudpickle.list_registry_pickle_by_value()
    finally:
        cloudpickle.unregister_pickle_by_value(mine)


def test_only_the_first_failures_get_a_line_each(run, capsys):
    @processing_stage(max_attempts=1)
    def refuse(task: Numbers) -> Numbers:
        raise ValueError("bad")

    run([refuse], [Numbers(data=i) for i in range(50)], ignore_failures=True, view="lines")
    text = capsys.readouterr().err
    assert text.count("ValueError: bad") == 5
    assert "more tasks failed" in text


def test_further_failures_are_counted_now_and_then():
    lines: list[str] = []
    failures = FailureLines(lines.append)
    for now in range(100):
        failures.add("a", f"task {now} failed", float(now))
        failures.add("b", f"task {now} failed", float(now))
        failures.catch_up(float(now))
    assert len(lines) <= 2 * 5 + 100 / 10 + 1
    assert sum(int(part.split()[1]) for x in lines if "more" in x for part in x.split("; ")) > 150
