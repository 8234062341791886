"""A batch of tasks in a worker of somebody else's scheduler: what it reports, and what is run again counts once."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest

from gristmill.backends.bridge.clerk import Clerk, Standing
from gristmill.backends.bridge.reports import Report
from gristmill.backends.bridge.unit import StepBench, StoppedError
from gristmill.backends.engine.payload import pack, unpack
from gristmill.backends.step_runner import Documents, Interrupt, StepRunner
from gristmill.stages.core import ProcessingStage
from gristmill.tasks import DocumentBatch, Task


@dataclass
class Number(Task[int]):
    data: int = 0


def packed(*numbers: int) -> list[tuple[str, bytes]]:
    return [(str(n), b"".join(pack(Number(data=n)))) for n in numbers]


def bench(stage: ProcessingStage[Any, Any], clerk: Clerk, attempts: int = 2) -> StepBench:
    return StepBench(StepRunner([stage]), 0, attempts, clerk)


def clerk_for(attempts: int = 2) -> Clerk:
    return Clerk(b"", [attempts])


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


def test_what_a_task_becomes_is_reported_before_it_goes_on():
    clerk = clerk_for()
    made = bench(Triple(), clerk).run(packed(1))
    assert not clerk.news().reports
    first = next(made)
    (report,) = clerk.news().reports
    assert first.label == "1.0" and report.labels == ("1",) and report.ended
    assert report.made == (("1.0", 1), ("1.1", 1), ("1.2", 1))
    assert [unpack(x.payload).data for x in made] == [11, 12]


def test_what_is_run_again_is_made_again_and_not_reported_twice():
    clerk = clerk_for()
    first = list(bench(Triple(), clerk).run(packed(1)))
    clerk.news()
    again = list(bench(Triple(), clerk).run(packed(1)))
    assert labels(again) == labels(first) == ["1.0", "1.1", "1.2"]
    assert not clerk.news().reports


def test_a_task_that_raises_is_tried_again_and_given_up_alone():
    clerk, stage = clerk_for(), Picky(2)
    assert labels(bench(stage, clerk, attempts=3).run(packed(1, 2, 3))) == ["1", "3"]
    assert stage.calls == [[1], [2], [2], [2], [3]]
    reports = clerk.news().reports
    assert [r.lost for r in reports] == [False, True, False]
    (given_up,) = reports[1].given_up
    assert (given_up.label, given_up.error) == ("2", "ValueError: not 2")
    assert given_up.story[-2:] == ("attempt 3 failed: ValueError: not 2", "the task given up")


def test_a_batch_that_raises_is_halved_down_to_the_task_at_fault():
    clerk, stage = clerk_for(), PickyBatch(3)
    assert labels(bench(stage, clerk).run(packed(1, 2, 3, 4))) == ["1", "2", "4"]
    assert stage.calls == [[1, 2, 3, 4], [1, 2], [3, 4], [3], [3], [4]]
    assert [r.labels for r in clerk.news().reports] == [("1", "2"), ("3",), ("4",)]


def test_a_task_of_many_items_is_cut_to_find_the_bad_one():
    class Strict(ProcessingStage[DocumentBatch, DocumentBatch]):
        def process(self, task: DocumentBatch) -> DocumentBatch:
            assert "bad" not in task.data["text"].to_pylist()
            return task

    texts = [f"t{i}" for i in range(10)]
    texts[6] = "bad"
    batch = DocumentBatch(data=pa.table({"text": texts}))
    clerk = clerk_for()
    made = list(bench(Strict(), clerk).run([("0", b"".join(pack(batch)))]))
    assert [t for x in made for t in unpack(x.payload).data["text"].to_pylist()] == texts[:6] + texts[7:]
    reports = clerk.news().reports
    assert [(x.start, x.stop, x.items) for r in reports for x in r.given_up] == [(6, 7, 1)]
    assert reports[-1].ended and not reports[-1].lost and not any(r.ended for r in reports[:-1])


def test_a_task_that_is_bad_throughout_is_not_searched_to_its_end():
    class Never(ProcessingStage[DocumentBatch, DocumentBatch]):
        def process(self, task: DocumentBatch) -> DocumentBatch:
            raise ValueError

    batch = DocumentBatch(data=pa.table({"text": ["x"] * 1000}))
    clerk = clerk_for()
    assert not list(bench(Never(), clerk).run([("0", b"".join(pack(batch)))]))
    (report,) = clerk.news().reports
    assert sum(x.items for x in report.given_up) == 1000 and len(report.given_up) < 50 and report.lost


def test_a_stage_that_loses_the_ids_ends_the_run_without_another_attempt():
    calls = []

    class Forgetful(ProcessingStage[DocumentBatch, DocumentBatch]):
        name = "forgetful"

        def process(self, task: DocumentBatch) -> DocumentBatch:
            calls.append(task.num_items)
            return DocumentBatch(data=task.data.select(["text"]))

    batch = DocumentBatch(data=pa.table({"text": ["x"] * 8, "_gristmill_id": [f"a#{i}" for i in range(8)]}))
    clerk = clerk_for()
    runner = StepRunner((Forgetful(),), None, Documents(0, True, None))
    with pytest.raises(StoppedError, match="'forgetful' returned documents without the column"):
        list(StepBench(runner, 0, 3, clerk).run([("0", b"".join(pack(batch)))]))
    assert calls == [8] and "'forgetful' returned documents" in clerk.news().fatal


def test_a_batch_is_reported_before_it_goes_on():
    clerk = clerk_for()
    made = bench(PickyBatch(), clerk).run(packed(1, 2))
    next(made)
    (report,) = clerk.news().reports
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
    clerk = clerk_for()
    made = list(bench(Flaky(), clerk).run([("0", b"".join(pack(batch)))]))
    assert [t for x in made for t in unpack(x.payload).data["text"].to_pylist()] == ["a", "b", "c", "bad"]
    assert not any(r.given_up for r in clerk.news().reports)


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


def until_death(stage: ProcessingStage[Any, Any], clerk: Clerk, *numbers: int) -> list[str]:
    """What a worker makes of tasks before it dies of one. An `Interrupt` is caught by nobody, like a death."""
    made: list[str] = []
    with contextlib.suppress(Interrupt):
        for x in bench(stage, clerk).run(packed(*numbers)):
            made.append(x.label)
    return made


def test_a_task_whose_worker_dies_is_given_up_when_that_has_happened_often_enough():
    clerk = clerk_for(attempts=2)
    assert until_death(Deadly(7), clerk, 7) == []
    assert until_death(Deadly(7), clerk, 7) == []
    assert not clerk.news().reports
    assert until_death(Deadly(7), clerk, 7) == []
    news = clerk.news()
    (report,) = news.reports
    assert report.lost and "died 2 times" in report.given_up[0].error
    assert news.deaths == 2


def test_a_death_in_a_batch_costs_one_task_and_the_others_are_made_each_time():
    clerk = clerk_for(attempts=2)
    for _ in range(3):
        until_death(DeadlyBatch(7), clerk, 5, 6, 7, 8)
    made = until_death(DeadlyBatch(7), clerk, 5, 6, 7, 8)
    assert sorted(made) == ["5", "6", "8"]
    ended = [label for r in clerk.news().reports if r.ended for label in r.labels]
    assert sorted(ended) == ["5", "6", "7", "8"]
    assert sorted(until_death(DeadlyBatch(7), clerk, 5, 6, 7, 8)) == ["5", "6", "8"]
    assert not clerk.news().reports


def test_a_stream_that_is_cut_short_goes_on_where_its_reports_ended(monkeypatch):
    monkeypatch.setattr("gristmill.backends.bridge.unit._CHUNK_OUTPUTS", 2)
    dies_at = [5]

    class Long(ProcessingStage[Number, Number]):
        def process(self, task: Number) -> Iterator[Number]:
            for i in range(7):
                if i == dies_at[0]:
                    raise Interrupt
                yield Number(data=i)

    clerk = clerk_for()
    assert until_death(Long(), clerk, 1) == ["1.0", "1.1", "1.2", "1.3"]
    dies_at[0] = -1
    assert until_death(Long(), clerk, 1) == [f"1.{i}" for i in range(7)]
    reports = clerk.news().reports
    assert [label for r in reports for label, _ in r.made] == [f"1.{i}" for i in range(7)]
    assert sum(r.counts[0][3] for r in reports) == 7
    assert [r.ended for r in reports] == [False, False, False, True]


def test_a_worker_that_was_taken_for_dead_and_lives_is_not_heard_twice():
    clerk = clerk_for()
    clerk.begin(0, ["1"])
    part = Report(0, ("1",), 0, (("1.0", 1), ("1.1", 1)), [(1, 1, 0, 2, 2, 0, 5)], {}, 5, False)
    clerk.report(part)
    clerk.report(part)
    assert clerk.news().reports == [part]


@pytest.mark.parametrize("standing", [Standing.NEW, Standing.SUSPECT])
def test_what_the_clerk_says_of_a_task(standing):
    clerk = clerk_for()
    if standing is Standing.SUSPECT:
        clerk.begin(0, ["a"])
    assert clerk.begin(0, ["a"]) == [(standing, 0)]


def test_no_worker_sets_up_when_the_run_is_over():
    clerk = clerk_for()
    assert clerk.begin_setup(0, "a")
    clerk.close()
    assert not clerk.begin_setup(0, "b")


def test_workers_that_die_in_their_setup_end_the_run():
    clerk = clerk_for()
    assert [clerk.begin_setup(0, "a") for _ in range(4)] == [True, True, True, False]
    assert "3 workers died in setup()" in clerk.news().fatal


def test_workers_that_set_up_at_the_same_time_are_not_taken_for_dead():
    clerk = clerk_for()
    assert all(clerk.begin_setup(0, f"worker {n}") for n in range(20))
    for n in range(20):
        clerk.set_up(0, f"worker {n}")
    assert clerk.begin_setup(0, "worker 0")
    assert not clerk.news().fatal


def test_a_worker_that_starts_again_under_its_name_is_one_worker():
    clerk = clerk_for()
    for _ in range(2):
        clerk.set_up(0, "actor")
    clerk.torn_down("actor", ["teardown of 'x': oops"])
    news = clerk.news()
    assert (news.setups, news.teardowns, news.open_workers) == ([0, 0], [0], 0)
    assert news.messages == ["teardown of 'x': oops"]
