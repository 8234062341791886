"""The kinds of stages and of their results, on real processes."""

from __future__ import annotations

import itertools
import os
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from gristmill.errors import OutputsNotKept, PipelineFailed
from gristmill.stages.core import ProcessingStage
from gristmill.stages.function_definitions import processing_stage
from gristmill.tasks import DocumentBatch, EmptyTask, Task


@dataclass
class Numbers(Task[list]):
    data: list = field(default_factory=list)

    @property
    def num_items(self) -> int:
        return len(self.data)


@dataclass
class Arrays(Task[dict]):
    data: dict = field(default_factory=dict)


def numbers(n: int) -> list[Numbers]:
    return [Numbers(data=[i]) for i in range(n)]


class Add(ProcessingStage[Numbers, Numbers]):
    def __init__(self, k: int, name: str = "add") -> None:
        self.k = k
        self.name = name

    def process(self, task: Numbers) -> Numbers:
        task.data = [x + self.k for x in task.data]
        return task


class Repeat(ProcessingStage[Numbers, Numbers]):
    """As a list, without saying so in a way that planning could see."""

    def __init__(self, n: int, name: str = "repeat") -> None:
        self.n = n
        self.name = name

    def process(self, task):  # type: ignore[no-untyped-def]
        return [Numbers(data=[*task.data, i]) for i in range(self.n)]


class Pieces(ProcessingStage[Numbers, Numbers]):
    def __init__(self, n: int) -> None:
        self.n = n

    def process(self, task: Numbers):  # type: ignore[no-untyped-def]
        for i in range(self.n):
            yield Numbers(data=[*task.data, i])


@processing_stage
def only_even(task: Numbers) -> Numbers | None:
    return task if task.data[0] % 2 == 0 else None


def shown(result: Any) -> list[tuple[str, list[int]]]:
    return [(task.task_id, task.data) for task in result]


@pytest.mark.parametrize("fuse", [True, False])
def test_one_to_one_in_the_order_of_the_source(run, fuse):
    result = run([Add(1), Add(10, "more")], numbers(30), fuse=fuse)
    assert shown(result) == [(str(i), [i + 11]) for i in range(30)]
    assert [type(task) for task in result] == [Numbers] * 30


def test_several_and_none_get_ids_from_parent_and_position(run):
    expected = [(f"{i}.{j}.{k}", [i, j, k]) for i in (0, 2, 4) for j in range(2) for k in range(3)]
    stages = [only_even, Repeat(2), Pieces(3)]
    for fuse, cpus in ((True, 1), (False, 1), (False, 4)):
        result = run(stages, numbers(5), fuse=fuse, num_cpus=cpus)
        assert shown(result) == expected
        assert result.stages["only_even"].tasks_dropped == 2
        assert result.stages["Pieces"].tasks_out == 18


def test_a_stage_cannot_change_ids(run):
    @processing_stage
    def forger(task: Numbers) -> Numbers:
        task.task_id = "forged"
        return task

    assert [t.task_id for t in run([forger, Add(1)], numbers(3))] == ["0", "1", "2"]


def test_an_empty_list_drops(run):
    result = run([Repeat(0)], numbers(4))
    assert len(result) == 0
    assert result.stages["repeat"].tasks_dropped == 4


def test_a_huge_generator_is_streamed(run):
    @processing_stage
    def make(task: EmptyTask) -> list[Arrays]:
        return (Arrays(data={"x": np.full(1 << 20, i % 251, np.uint8)}) for i in range(2048))  # type: ignore[return-value]

    @processing_stage
    def check(task: Arrays) -> Numbers:
        (value,) = set(task.data["x"][:: 1 << 16].tolist())
        return Numbers(data=[int(value)])

    result = run([make, check], keep=True, num_cpus=1, object_store_memory="64MB")
    assert [task.data[0] for task in result] == [i % 251 for i in range(2048)]
    assert result.record.peak_bytes_in_flight < 100e6
    assert result.record.peak_memory_bytes < 700e6


def test_what_is_done_with_gives_its_memory_back(run):
    @processing_stage
    def copy(task: Arrays) -> Arrays:
        return Arrays(data={"x": task.data["x"] + 1})

    used = []

    def source():  # type: ignore[no-untyped-def]
        for i in range(300):
            used.append(arena_bytes())
            yield Arrays(data={"x": np.full(1 << 20, i % 100, np.uint8)})

    result = run([copy, copy.with_(name="again")], source(), fuse=False, keep=False, object_store_memory="32MB")
    assert result.stages["again"].tasks_out == 300
    assert 1e6 < max(used) < 80e6


def arena_bytes() -> int:
    """The size of the anonymous files of this process."""
    total = 0
    for fd in os.listdir("/proc/self/fd"):
        try:
            if "memfd:gristmill" in os.readlink(f"/proc/self/fd/{fd}"):
                total += os.stat(f"/proc/self/fd/{fd}").st_blocks * 512
        except OSError:
            continue
    return total


@pytest.mark.alone  # the time of the first output counts
def test_a_slow_generator_does_not_hold_its_outputs_back(run):
    @processing_stage
    def slow(task: Numbers):  # type: ignore[no-untyped-def]
        import time

        for i in range(4):
            time.sleep(0.3)
            yield Numbers(data=[i])

    result = run([slow, Add(0)], numbers(1))
    assert len(result) == 4
    assert result.record.first_output_s < result.record.wall_s - 0.5


class Batched(ProcessingStage[Numbers, Numbers]):
    batch_size = 4

    def __init__(self, how: str = "one each") -> None:
        self.how = how

    def process(self, task: Numbers) -> Numbers:
        raise AssertionError("process_batch is there")

    def process_batch(self, tasks: list[Numbers]) -> list[Any]:
        assert 1 <= len(tasks) <= 4
        if self.how == "too few":
            return list(tasks[1:])
        if self.how == "not a list":
            return iter(tasks)  # type: ignore[return-value]
        return [None if t.data[0] == 3 else [t, Numbers(data=[-1])] if t.data[0] == 5 else t for t in tasks]


def test_batches_give_one_result_for_each_task(run):
    result = run([Batched()], numbers(10))
    expected = [(str(i), [i]) for i in range(10) if i not in (3, 5)]
    expected[4:4] = [("5.0", [5]), ("5.1", [-1])]
    assert shown(result) == expected
    assert result.steps["Batched"].units < 10


@pytest.mark.parametrize("how, words", [("too few", "3 results for 4 tasks"), ("not a list", "a list_iterator for")])
def test_a_batch_of_the_wrong_length_is_a_clear_error(run, how, words):
    result = run([Batched(how).with_(max_attempts=1)], numbers(4), ignore_failures=True)
    assert {f.stage for f in result.failures} == {"Batched"}
    assert any(words in line for f in result.failures for line in (f.error, *f.story))


@pytest.mark.parametrize(
    "value, words", [("text", "returned a str"), ([1], "one of them a int"), (3, "returned a int")]
)
def test_a_wrong_return_type_names_the_stage(run, value, words):
    @processing_stage(name="wrong")
    def wrong(task: Numbers):  # type: ignore[no-untyped-def]
        return value

    with pytest.raises(PipelineFailed, match=f"'wrong' {words}|{words}"):
        run([Add(1), wrong], numbers(1), max_attempts=1)


@pytest.mark.parametrize("kind", ["arrow", "pandas"])
def test_large_documents_arrive_unchanged(run, kind):
    @processing_stage
    def pass_on(task: DocumentBatch) -> DocumentBatch:
        return task

    @processing_stage
    def through_pandas(task: DocumentBatch) -> DocumentBatch:
        task.data = task.to_pandas()
        return task

    table = pa.table({"text": [f"document {i} " * 20 for i in range(5000)], "n": pa.array(range(5000), pa.int32())})
    data = table if kind == "arrow" else table.to_pandas()
    batches = [DocumentBatch(data=data, dataset_name=str(i)) for i in range(4)]
    result = run([pass_on, through_pandas], batches, fuse=False)
    for i, batch in enumerate(result):
        assert batch.to_pyarrow() == batches[i].to_pyarrow()
        assert batch.dataset_name == str(i)
        pd.testing.assert_frame_equal(batch.to_pandas(), batches[i].to_pandas())


@pytest.mark.parametrize("size", [10, 300_000])
def test_arrays_can_be_written_after_transport(run, size):
    @processing_stage
    def write(task: Arrays) -> Arrays:
        task.data["x"] += 1.0
        task.data["y"][0] = 5
        return task

    tasks = [Arrays(data={"x": np.zeros(size), "y": np.zeros((3, 2), order="F")}) for _ in range(3)]
    for task in run([write.with_(name="one"), write.with_(name="two")], tasks, fuse=False):
        assert (task.data["x"] == 2).all()
        task.data["x"] += 1


def test_more_buffers_than_fit_one_call_travel_too(run):
    tasks = [Arrays(data={i: np.full(100, i) for i in range(2000)})]

    @processing_stage
    def same(task: Arrays) -> Arrays:
        return task

    (task,) = run([same], tasks)
    assert all((task.data[i] == i).all() for i in range(2000))


def test_keep_outputs(run):
    assert len(run([Add(1)], numbers(3))) == 3
    assert len(run([Add(1)], numbers(3), keep=True)) == 3
    with pytest.raises(OutputsNotKept, match="keep_outputs is False"):
        list(run([Add(1)], numbers(3), keep=False))

    @processing_stage
    def source(task: EmptyTask) -> list[Numbers]:
        return numbers(3)

    with pytest.raises(OutputsNotKept, match="no initial_tasks"):
        list(run([source]))
    assert len(run([source], keep=True)) == 3


def test_outputs_are_let_go_when_they_are_large(run):
    @processing_stage
    def grow(task: Numbers) -> Arrays:
        return Arrays(data={"x": np.zeros(30_000_000, np.uint8)})

    with pytest.raises(OutputsNotKept, match="larger than 64 MB"):
        list(run([grow], numbers(4)))
    assert len(run([grow], numbers(4), keep=True)) == 4


def test_an_endless_source_is_taken_only_as_memory_allows(run):
    taken = []

    def endless():  # type: ignore[no-untyped-def]
        for i in itertools.count():
            taken.append(i)
            yield Arrays(data={"n": i, "x": np.zeros(100_000, np.uint8)})

    @processing_stage(max_attempts=1)
    def fail_at_thirty(task: Arrays) -> Arrays:
        assert task.data["n"] != 30
        return task

    with pytest.raises(PipelineFailed, match="AssertionError"):
        run([fail_at_thirty], endless(), keep=False, object_store_memory="1MB")
    assert len(taken) < 100


def test_a_source_that_raises_ends_the_run(run):
    def source():  # type: ignore[no-untyped-def]
        yield from numbers(100)
        raise KeyError("no more")

    with pytest.raises(KeyError, match="no more"):
        run([Add(1)], source())


def test_a_source_that_gives_something_else(run):
    with pytest.raises(Exception, match="initial task 1 is a NoneType, not a Task"):
        run([Add(1)], iter([Numbers(data=[1]), None, Numbers(data=[2])]))


def test_what_stages_print_is_shown(run, capsys):
    @processing_stage
    def talk(task: Numbers) -> Numbers:
        import sys

        print(f"hello {task.data[0]}")
        print("oops", file=sys.stderr, end="")
        return task

    run([talk], numbers(3))
    out, err = capsys.readouterr()
    assert sorted(out.splitlines()) == ["hello 0", "hello 1", "hello 2"]
    assert err.count("oops") == 3


@pytest.mark.parametrize("n", [0, 1])
def test_hardly_any_tasks(run, n):
    result = run([Add(1), Repeat(2)], numbers(n))
    assert len(result) == 2 * n


def test_twenty_thousand_tiny_tasks_on_one_core(run):
    result = run([Add(1), Add(2, "b")], (Numbers(data=[i]) for i in range(20_000)), num_cpus=1, fuse=False)
    assert [t.data[0] for t in result] == [i + 3 for i in range(20_000)]


def test_a_task_larger_than_the_budget_runs_alone(run):
    @processing_stage
    def total(task: Arrays) -> Numbers:
        return Numbers(data=[int(task.data["x"][-1]), os.getpid()])

    @processing_stage
    def pass_on(task: Arrays) -> Arrays:
        return task

    tasks = (Arrays(data={"x": np.full(200_000_000, i, np.uint8)}) for i in range(3))
    result = run([pass_on, total], tasks, fuse=False, object_store_memory="64MB")
    assert [task.data[0] for task in result] == [0, 1, 2]
    assert result.record.peak_bytes_in_flight < 500e6


def test_batch_mode_has_barriers(run, tmp_path):
    log = tmp_path / "order"

    def note(name: str):  # type: ignore[no-untyped-def]
        @processing_stage(name=name)
        def stage(task: Arrays) -> Arrays:
            with open(log, "a") as file:
                file.write(name)
            return task

        return stage

    tasks = [Arrays(data={"x": np.zeros(100_000)}) for _ in range(8)]
    result = run([note("a"), note("b"), note("c")], tasks, fuse=False, execution_mode="batch")
    assert len(result) == 8
    assert log.read_text() == "a" * 8 + "b" * 8 + "c" * 8


def test_the_event_log_replays_to_the_same_hash(run, tmp_path):
    from gristmill.scheduling.log import replay

    path = tmp_path / "events"
    result = run([only_even, Pieces(300)], numbers(20), fuse=False, event_log=path)
    assert result.record.event_hash
    assert replay(path.read_text().splitlines()).event_hash() == result.record.event_hash
