"""Tasks that fail, in every way a process can: they alone are given up, with a story."""

from __future__ import annotations

import ctypes
import os
import threading
import time
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from gristmill.errors import PipelineError, PipelineFailed
from gristmill.stages.core import ProcessingStage
from gristmill.stages.function_definitions import processing_stage
from gristmill.tasks import DocumentBatch, Task


@dataclass
class Numbers(Task[Any]):
    data: Any = None


def numbers(n: int) -> list[Numbers]:
    return [Numbers(data=i) for i in range(n)]


def values(result: Any) -> list[Any]:
    return [task.data for task in result]


class Misbehave(ProcessingStage[Numbers, Numbers]):
    """Does something terrible to one task."""

    def __init__(self, how: str, culprit: int = 7) -> None:
        self.how = how
        self.culprit = culprit

    def process(self, task: Numbers) -> Numbers:
        if task.data == self.culprit:
            getattr(self, self.how)()
        return task

    def segfault(self) -> None:
        ctypes.string_at(0)

    def exit(self) -> None:
        os._exit(3)

    def sys_exit(self) -> None:
        raise SystemExit(3)

    def hang(self) -> None:
        time.sleep(100)

    def eat(self) -> None:
        hoard = []
        while True:
            hoard.append(np.ones(4_000_000))
            time.sleep(0.01)


@processing_stage
def before(task: Numbers) -> Numbers:
    return task


def test_an_exception_is_retried_then_told_with_its_story(run, tmp_path):
    tries = tmp_path / "tries"

    @processing_stage(name="divide")
    def divide(task: Numbers) -> Numbers:
        if task.data == 3:
            with open(tries, "a") as file:
                file.write("x")
            return helper(task.data)
        return task

    def helper(x: int) -> Any:
        try:
            return x / 0
        except ZeroDivisionError as error:
            raise ValueError(f"cannot divide {x}\nnot by zero") from error

    with pytest.raises(PipelineFailed) as caught:
        run([before, divide], numbers(10), max_attempts=4)
    assert tries.read_text() == "xxxx"
    text = str(caught.value)
    assert "stage 'divide', task 3 (1 item): ValueError: cannot divide 3" in text
    assert "attempt 4 failed" in text and "given up" in text
    assert "ZeroDivisionError" in text and "in helper" in text
    assert "gristmill/backends" not in text and "function_definitions" not in text
    (failure,) = caught.value.result.failures
    assert failure.error == "ValueError: cannot divide 3"
    assert "not by zero" in failure.detail


def test_a_task_that_fails_once_is_not_lost(run, tmp_path):
    @processing_stage
    def flaky(task: Numbers) -> Numbers:
        flag = tmp_path / str(task.data)
        if task.data % 5 == 0 and not flag.exists():
            flag.touch()
            raise OSError("try again")
        return task

    result = run([before, flaky], numbers(30))
    assert values(result) == list(range(30)) and result.ok


def test_failures_can_be_ignored(run):
    @processing_stage
    def odd_fails(task: Numbers) -> Numbers:
        assert task.data % 2 == 0
        return task

    result = run([before, odd_fails], numbers(20), ignore_failures=True, max_attempts=2)
    assert values(result) == list(range(0, 20, 2))
    assert {f.task_id for f in result.failures} == {str(i) for i in range(1, 20, 2)}
    stats = result.stages["odd_fails"]
    assert (stats.tasks_in, stats.tasks_done, stats.tasks_failed) == (20, 10, 10)
    assert not result.ok


@pytest.mark.parametrize("fuse", [True, False])
def test_one_bad_record_in_a_thousand_is_found(run, fuse):
    @processing_stage
    def strict(task: DocumentBatch) -> DocumentBatch:
        if "poison" in task.data["text"].to_pylist():
            raise ValueError("poison")
        return task

    @processing_stage
    def pass_on(task: DocumentBatch) -> DocumentBatch:
        return task

    texts = [f"text {i}" for i in range(1000)]
    texts[613] = "poison"
    result = run([pass_on, strict], [DocumentBatch(data=pa.table({"text": texts}))], ignore_failures=True, fuse=fuse)
    (failure,) = result.failures
    assert (failure.task_id, failure.items, failure.stage) == ("0[613]", 1, "strict")
    got = [text for batch in result for text in batch.data["text"].to_pylist()]
    assert got == texts[:613] + texts[614:]


@pytest.mark.parametrize(
    "how, words", [("segfault", "SIGSEGV"), ("exit", "exit code 3"), ("sys_exit", "SystemExit: 3")]
)
@pytest.mark.parametrize("fuse", [True, False])
def test_a_task_that_ends_its_process_is_the_only_one_lost(run, how, words, fuse):
    result = run([before, Misbehave(how)], numbers(40), ignore_failures=True, fuse=fuse)
    assert values(result) == [i for i in range(40) if i != 7]
    (failure,) = result.failures
    assert (failure.task_id, failure.stage) == ("7", "Misbehave")
    assert words in failure.error
    assert result.record.worker_deaths == (0 if how == "sys_exit" else 2)


@pytest.mark.alone  # other tasks must end within 0.6 s
def test_a_task_that_hangs_is_the_only_one_lost(run):
    result = run([before, Misbehave("hang").with_(timeout_s=0.6)], numbers(30), ignore_failures=True)
    assert values(result) == [i for i in range(30) if i != 7]
    (failure,) = result.failures
    assert "timed out" in failure.error


def test_a_task_that_eats_all_memory_is_the_only_one_lost(run):
    result = run([before, Misbehave("eat")], numbers(30), ignore_failures=True, memory_limit="1200MiB")
    assert values(result) == [i for i in range(30) if i != 7]
    (failure,) = result.failures
    assert "ran out of memory" in failure.error and "1.17 GB" in failure.error


@pytest.mark.parametrize("workers", [None, 1])
def test_a_crash_in_the_middle_of_a_batch_costs_one_task(run, workers):
    class Batched(Misbehave):
        batch_size = 8

        def process_batch(self, tasks: list[Numbers]) -> list[Any]:
            return [self.process(task) for task in tasks]

    result = run([Batched("segfault").with_(num_workers=workers)], numbers(24), ignore_failures=True)
    assert values(result) == [i for i in range(24) if i != 7]
    assert [f.task_id for f in result.failures] == ["7"]


@pytest.mark.parametrize("ending", ["raise", "crash"])
@pytest.mark.parametrize("fuse", [True, False])
def test_a_generator_that_ends_badly_keeps_its_account(run, ending, fuse):
    @processing_stage
    def generate(task: Numbers):  # type: ignore[no-untyped-def]
        for i in range(1000):
            yield Numbers(data=1000 * task.data + i)
        if task.data == 2:
            if ending == "crash":
                os._exit(9)
            raise ValueError("at the end")

    result = run([before, generate, before.with_(name="after")], numbers(4), ignore_failures=True, fuse=fuse)
    assert [f.task_id for f in result.failures] == ["2"]
    got = values(result)
    assert len(got) == len(set(got))
    assert set(got) >= {1000 * i + j for i in (0, 1, 3) for j in range(1000)}
    result.check()


@pytest.mark.parametrize("ending", ["raise", "crash"])
def test_a_list_whose_part_fails_keeps_its_account(run, ending):
    @processing_stage
    def several(task: Numbers):  # type: ignore[no-untyped-def]
        return [Numbers(data=1000 * task.data + i) for i in range(600)]

    @processing_stage
    def picky(task: Numbers) -> Numbers:
        if task.data == 1400:
            if ending == "crash":
                os._exit(9)
            raise ValueError("not this one")
        return task

    result = run([before, several, picky], numbers(3), ignore_failures=True)
    assert [(f.task_id, f.stage) for f in result.failures] == [("1", "picky")]
    assert set(values(result)) >= {*range(600), *range(2000, 2600)}
    result.check()


def test_an_early_end_keeps_its_account(run):
    @processing_stage
    def generate(task: Numbers):  # type: ignore[no-untyped-def]
        for i in range(20_000):
            yield Numbers(data=i)

    @processing_stage(max_attempts=1)
    def fail(task: Numbers) -> Numbers:
        assert task.data != 700
        return task

    with pytest.raises(PipelineFailed) as caught:
        run([before, generate, fail], numbers(3), keep=False, object_store_memory="2MB")
    caught.value.result.check()


@pytest.mark.parametrize("workers", [None, 1])
def test_a_setup_that_raises_ends_the_run(run, tmp_path, workers):
    class Bad(ProcessingStage[Numbers, Numbers]):
        def setup(self) -> None:
            with open(tmp_path / "tries", "a") as file:
                file.write("x")
            raise FileNotFoundError("model.bin")

        def process(self, task: Numbers) -> Numbers:
            return task

    with pytest.raises(PipelineError, match=r"(?s)setup of 'Bad' failed 3 times.*FileNotFoundError: model.bin"):
        run([before, Bad().with_(num_workers=workers)], numbers(50), num_cpus=1, fuse=False)
    assert (tmp_path / "tries").read_text() == "xxx"


def test_a_setup_that_fails_now_and_then(run, tmp_path):
    class Moody(ProcessingStage[Numbers, Numbers]):
        def __init__(self, name: str) -> None:
            self.name = name

        def setup(self) -> None:
            flag = tmp_path / self.name
            if not flag.exists():
                flag.touch()
                raise OSError("not today")

        def process(self, task: Numbers) -> Numbers:
            return task

    result = run([before, Moody("a"), Moody("b")], numbers(200), fuse=False)
    assert values(result) == list(range(200))
    assert result.ok and result.stages["a"].setups == result.stages["a"].teardowns >= 1


def test_a_setup_that_segfaults_ends_the_run(run):
    class Bad(ProcessingStage[Numbers, Numbers]):
        def setup(self) -> None:
            ctypes.string_at(0)

        def process(self, task: Numbers) -> Numbers:
            return task

    with pytest.raises(PipelineError, match=r"setup of 'Bad'.*SIGSEGV"):
        run([before, Bad()], numbers(5), fuse=False)


def test_a_stage_that_cannot_be_pickled_is_named(run):
    class Holding(ProcessingStage[Numbers, Numbers]):
        def __init__(self) -> None:
            self.lock = threading.Lock()

        def process(self, task: Numbers) -> Numbers:
            return task

    with pytest.raises(PipelineError, match=r"stage 'Holding' cannot be sent to a worker: TypeError.*setup\(\)"):
        run([before, Holding()], numbers(1))


def test_a_task_that_cannot_be_pickled_is_named(run):
    with pytest.raises(PipelineError, match=r"initial task 1, a Numbers, cannot be sent to a worker: TypeError"):
        run([before], [Numbers(data=1), Numbers(data=threading.Lock())])


def test_an_output_that_cannot_be_pickled_is_a_failure_of_its_stage(run):
    @processing_stage(name="locksmith")
    def locksmith(task: Numbers) -> Numbers:
        return Numbers(data=threading.Lock())

    with pytest.raises(PipelineFailed, match=r"stage 'locksmith', task 0.*cannot be passed on: TypeError"):
        run([before, locksmith], numbers(1), max_attempts=1)


def test_a_broken_property_of_a_task_is_a_failure_of_its_stage(run):
    @dataclass
    class Broken(Task[int]):
        data: int = 0

        @property
        def num_items(self) -> int:
            raise LookupError("who knows")

    @processing_stage(name="breaker")
    def breaker(task: Numbers) -> Task:
        return Broken(data=1)

    with pytest.raises(PipelineFailed, match=r"stage 'breaker', task 0.*LookupError: who knows"):
        run([before, breaker], numbers(1), max_attempts=1)


def test_a_stage_that_workers_cannot_load_is_a_clear_error(run):
    class Unloadable(ProcessingStage[Numbers, Numbers]):
        def __reduce__(self) -> Any:
            return (__import__, ("no_such_module_anywhere",))

        def process(self, task: Numbers) -> Numbers:
            return task

    with pytest.raises(PipelineError, match=r"(?s)could not be loaded.*No module named 'no_such_module_anywhere'"):
        run([Unloadable()], numbers(1))


def test_task_classes_of_a_function(run):
    @dataclass
    class Local(Task[list]):
        data: list = field(default_factory=list)

    @processing_stage
    def extend(task: Local) -> Local:
        return Local(data=[*task.data, 1])

    result = run([extend, extend.with_(name="again")], [Local(data=[i]) for i in range(5)], fuse=False)
    assert values(result) == [[i, 1, 1] for i in range(5)]
    assert all(type(task) is Local for task in result)


def test_a_supervisor_that_cannot_start_is_a_clear_error(run, monkeypatch, tmp_path):
    fake = tmp_path / "python"
    fake.write_text("#!/bin/sh\necho the interpreter is broken >&2\nexit 4\n")
    fake.chmod(0o755)
    monkeypatch.setattr("sys.executable", str(fake))
    with pytest.raises(PipelineError, match=r"(?s)could not start \(exit code 4\).*the interpreter is broken"):
        run([before], numbers(1))
    monkeypatch.setattr("sys.executable", str(tmp_path / "nothing"))
    with pytest.raises(PipelineError, match="a process cannot be started"):
        run([before], numbers(1))
