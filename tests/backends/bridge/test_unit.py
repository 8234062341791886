"""A unit of tasks in a worker of another scheduler: its reports, and that work which is repeated counts once."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest

from gristmill.backends.accounting import Documents
from gristmill.backends.bridge.collector import Collector, PackedTask, Report, TaskStatus
from gristmill.backends.bridge.unit import StoppedError, UnitRunner
from gristmill.backends.engine.payload import pack, unpack
from gristmill.backends.stage_errors import Interrupt
from gristmill.backends.step_runner import StepRunner
from gristmill.stages.core import ProcessingStage
from gristmill.tasks import DocumentBatch, Task


@dataclass
class Number(Task[int]):
    data: int = 0


def packed(*numbers: int) -> list[PackedTask]:
    return [PackedTask(str(n), b"".join(pack(Number(data=n)))) for n in numbers]


def units(stage: ProcessingStage[Any, Any], collector: Collector, attempts: int = 2) -> UnitRunner:
    return UnitRunner(StepRunner([stage]), 0, attempts, collector)


def collector_for(attempts: int = 2) -> Collector:
    return Collector(b"", [attempts])


def labels(made: Any) -> list[str]:
    return [x.label for x in made]


class Triple(ProcessingStage[Number, Number]):
    def process(self, task: Number) -> Iterator[Number]:
        for i in range(3):
            yield Number(data=10 * task.data + i)


class Picky(ProcessingStage[Any, Any]):
    """Raises on some numbers; alone or in a batch."""

    def __init__(self, *bad: int) -> None:
        self.bad = bad
        self.calls: list[list[int]] = []

    def process(self, task: Any) -> Any:
        self.calls.append([task.data])
        if task.data in self.bad:
            raise ValueError(f"not {task.data}")
        return task


class PickyBatch(Picky):
    batch_size = 4

    def process_batch(self, tasks: list[Any]) -> list[Any]:
        self.calls.append([task.data for task in tasks])
        if any(task.data in self.bad for task in tasks):
            raise ValueError("not these")
        return list(tasks)


def test_outputs_are_reported_before_they_are_passed_on():
    collector = collector_for()
    made = units(Triple(), collector).run(packed(1))
    assert not collector.take_update().reports
    first = next(made)
    (report,) = collector.take_update().reports
    assert first.label == "1.0" and report.labels == ("1",) and report.ended
    assert report.outputs == ("1.0", "1.1", "1.2")
    assert [unpack(x.payload).data for x in made] == [11, 12]


def test_a_repeated_task_makes_its_outputs_again_and_does_not_report_them_twice():
    collector = collector_for()
    first = list(units(Triple(), collector).run(packed(1)))
    collector.take_update()
    again = list(units(Triple(), collector).run(packed(1)))
    assert labels(again) == labels(first) == ["1.0", "1.1", "1.2"]
    assert not collector.take_update().reports


def test_a_task_that_raises_is_tried_again_and_given_up_alone():
    collector, stage = collector_for(), Picky(2)
    assert labels(units(stage, collector, attempts=3).run(packed(1, 2, 3))) == ["1", "3"]
    assert stage.calls == [[1], [2], [2], [2], [3]]
    reports = collector.take_update().reports
    assert [r.lost for r in reports] == [False, True, False]
    (given_up,) = reports[1].given_up
    assert (given_up.label, given_up.error) == ("2", "ValueError: not 2")
    assert given_up.story[-2:] == ("attempt 3 failed: ValueError: not 2", "the task given up")


def test_a_batch_that_raises_is_halved_down_to_the_task_at_fault():
    collector, stage = collector_for(), PickyBatch(3)
    assert labels(units(stage, collector).run(packed(1, 2, 3, 4))) == ["1", "2", "4"]
    assert stage.calls == [[1, 2, 3, 4], [1, 2], [3, 4], [3], [3], [4]]
    assert [r.labels for r in collector.take_update().reports] == [("1", "2"), ("3",), ("4",)]


def test_a_task_of_many_items_is_split_to_find_the_bad_one():
    class Strict(ProcessingStage[DocumentBatch, DocumentBatch]):
        def process(self, task: DocumentBatch) -> DocumentBatch:
            assert "bad" not in task.data["text"].to_pylist()
            return task

    texts = [f"t{i}" for i in range(10)]
    texts[6] = "bad"
    batch = DocumentBatch(data=pa.table({"text": texts}))
    collector = collector_for()
    made = list(units(Strict(), collector).run([PackedTask("0", b"".join(pack(batch)))]))
    assert [t for x in made for t in unpack(x.payload).data["text"].to_pylist()] == texts[:6] + texts[7:]
    reports = collector.take_update().reports
    assert [(x.start, x.stop, x.items) for r in reports for x in r.given_up] == [(6, 7, 1)]
    assert reports[-1].ended and not reports[-1].lost and not any(r.ended for r in reports[:-1])


def test_a_task_whose_items_are_all_bad_is_not_searched_to_its_end():
    class Never(ProcessingStage[DocumentBatch, DocumentBatch]):
        def process(self, task: DocumentBatch) -> DocumentBatch:
            raise ValueError

    batch = DocumentBatch(data=pa.table({"text": ["x"] * 1000}))
    collector = collector_for()
    assert not list(units(Never(), collector).run([PackedTask("0", b"".join(pack(batch)))]))
    (report,) = collector.take_update().reports
    assert sum(x.items for x in report.given_up) == 1000 and len(report.given_up) < 50 and report.lost


def test_a_stage_that_loses_the_ids_ends_the_run_without_another_attempt():
    calls = []

    class Forgetful(ProcessingStage[DocumentBatch, DocumentBatch]):
        name = "forgetful"

        def process(self, task: DocumentBatch) -> DocumentBatch:
            calls.append(task.num_items)
            return DocumentBatch(data=task.data.select(["text"]))

    batch = DocumentBatch(data=pa.table({"text": ["x"] * 8, "_gristmill_id": [f"a#{i}" for i in range(8)]}))
    collector = collector_for()
    runner = StepRunner((Forgetful(),), None, Documents(0, True, None))
    with pytest.raises(StoppedError, match="'forgetful' returned documents without the column"):
        list(UnitRunner(runner, 0, 3, collector).run([PackedTask("0", b"".join(pack(batch)))]))
    assert calls == [8] and "'forgetful' returned documents" in collector.take_update().fatal


def test_a_batch_is_reported_before_it_is_passed_on():
    collector = collector_for()
    made = units(PickyBatch(), collector).run(packed(1, 2))
    next(made)
    (report,) = collector.take_update().reports
    assert report.labels == ("1", "2") and report.ended


def test_an_item_that_fails_once_is_tried_again_like_a_task():
    calls: list[list[str]] = []

    class Flaky(ProcessingStage[DocumentBatch, DocumentBatch]):
        def process(self, task: DocumentBatch) -> DocumentBatch:
            texts = task.data["text"].to_pylist()
            calls.append(texts)
            if "bad" in texts and calls.count(["bad"]) < 2:
                raise ValueError
            return task

    batch = DocumentBatch(data=pa.table({"text": ["a", "b", "c", "bad"]}))
    collector = collector_for()
    made = list(units(Flaky(), collector).run([PackedTask("0", b"".join(pack(batch)))]))
    assert [t for x in made for t in unpack(x.payload).data["text"].to_pylist()] == ["a", "b", "c", "bad"]
    assert not any(r.given_up for r in collector.take_update().reports)


# Deaths ---------------------------------------------------------------------------------------------------------


class Deadly(ProcessingStage[Number, Number]):
    def __init__(self, *deadly: int) -> None:
        self.deadly = deadly

    def process(self, task: Number) -> Number:
        if task.data in self.deadly:
            raise Interrupt
        return task


class DeadlyBatch(Deadly):
    batch_size = 4

    def process_batch(self, tasks: list[Number]) -> list[Any]:
        return [self.process(task) for task in tasks]


def until_death(stage: ProcessingStage[Any, Any], collector: Collector, *numbers: int) -> list[str]:
    """The outputs of a worker before a task kills it. No stage code catches an `Interrupt`, so it acts like a death."""
    made: list[str] = []
    with contextlib.suppress(Interrupt):
        for x in units(stage, collector).run(packed(*numbers)):
            made.append(x.label)
    return made


def test_a_task_is_given_up_when_as_many_workers_died_as_it_has_attempts():
    collector = collector_for(attempts=2)
    assert until_death(Deadly(7), collector, 7) == []
    assert until_death(Deadly(7), collector, 7) == []
    assert not collector.take_update().reports
    assert until_death(Deadly(7), collector, 7) == []
    update = collector.take_update()
    (report,) = update.reports
    assert report.lost and "died 2 times" in report.given_up[0].error
    assert update.deaths == 2


def test_a_death_in_a_batch_loses_one_task_and_the_others_are_made_each_time():
    collector = collector_for(attempts=2)
    for _ in range(3):
        until_death(DeadlyBatch(7), collector, 5, 6, 7, 8)
    made = until_death(DeadlyBatch(7), collector, 5, 6, 7, 8)
    assert sorted(made) == ["5", "6", "8"]
    ended = [label for r in collector.take_update().reports if r.ended for label in r.labels]
    assert sorted(ended) == ["5", "6", "7", "8"]
    assert sorted(until_death(DeadlyBatch(7), collector, 5, 6, 7, 8)) == ["5", "6", "8"]
    assert not collector.take_update().reports


def test_a_stream_that_was_interrupted_resumes_after_its_last_report(monkeypatch):
    monkeypatch.setattr("gristmill.backends.bridge.unit._CHUNK_OUTPUTS", 2)
    dies_at = [5]

    class Long(ProcessingStage[Number, Number]):
        def process(self, task: Number) -> Iterator[Number]:
            for i in range(7):
                if i == dies_at[0]:
                    raise Interrupt
                yield Number(data=i)

    collector = collector_for()
    assert until_death(Long(), collector, 1) == ["1.0", "1.1", "1.2", "1.3"]
    dies_at[0] = -1
    assert until_death(Long(), collector, 1) == [f"1.{i}" for i in range(7)]
    reports = collector.take_update().reports
    assert [label for r in reports for label in r.outputs] == [f"1.{i}" for i in range(7)]
    assert sum(r.counts[0][3] for r in reports) == 7
    assert [r.ended for r in reports] == [False, False, False, True]


def test_a_report_that_is_sent_twice_counts_once():
    collector = collector_for()
    collector.begin(0, ["1"])
    part = Report(0, ("1",), 0, ("1.0", "1.1"), [(1, 1, 0, 2, 2, 0, 5)], {}, 5, False)
    collector.report(part)
    collector.report(part)
    assert collector.take_update().reports == [part]


@pytest.mark.parametrize("status", [TaskStatus.NEW, TaskStatus.SUSPECT])
def test_the_status_of_a_task(status):
    collector = collector_for()
    if status is TaskStatus.SUSPECT:
        collector.begin(0, ["a"])
    assert collector.begin(0, ["a"]) == [(status, 0)]


def test_no_worker_sets_up_when_the_run_is_over():
    collector = collector_for()
    assert collector.begin_setup(0, "a")
    collector.close()
    assert not collector.begin_setup(0, "b")


def test_workers_that_die_in_their_setup_end_the_run():
    collector = collector_for()
    assert [collector.begin_setup(0, "a") for _ in range(4)] == [True, True, True, False]
    assert "3 workers died in setup()" in collector.take_update().fatal


def test_workers_that_set_up_at_the_same_time_do_not_count_as_dead():
    collector = collector_for()
    assert all(collector.begin_setup(0, f"worker {n}") for n in range(20))
    for n in range(20):
        collector.set_up(0, f"worker {n}")
    assert collector.begin_setup(0, "worker 0")
    assert not collector.take_update().fatal


def test_a_worker_that_restarts_under_its_name_is_one_worker():
    collector = collector_for()
    for _ in range(2):
        collector.set_up(0, "actor")
    collector.torn_down("actor", ["teardown of 'x': oops"])
    update = collector.take_update()
    assert (update.setups, update.teardowns, update.open_workers) == ([0, 0], [0], 0)
    assert update.messages == ["teardown of 'x': oops"]
